"""The Python blocks of README.md that need NumPy alone print what stands under them."""

import documents
from conftest import SOURCE


def test_readme():
    found = [block for block in documents.blocks((SOURCE / "README.md").read_text(), "python") if "import gdn2\n" in block[0]]
    assert len(found) == 1
    documents.run_python(found)
