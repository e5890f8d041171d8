"""docs/tutorial-torch.md: its blocks run one after the other and print what stands under them."""

import documents
import pytest
from conftest import SOURCE

pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")
pytest.importorskip("transformers", reason="transformers is not installed (tests/python/requirements-torch.txt)")


def test_blocks_print_what_the_document_says():
    text = (SOURCE / "docs" / "tutorial-torch.md").read_text()
    found = documents.blocks(text, "python")
    assert len(found) == text.count("```python") > 4
    documents.run_python(found)
