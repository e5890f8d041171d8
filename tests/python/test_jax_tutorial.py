"""docs/tutorial-jax.md and the block of README.md on JAX: the blocks run in their order and print what stands under them."""

import documents
import pytest
from conftest import SOURCE

pytest.importorskip("jax", reason="jax is not installed")


def test_tutorial():
    text = (SOURCE / "docs" / "tutorial-jax.md").read_text()
    found = documents.blocks(text, "python")
    assert len(found) == text.count("```python") > 5
    documents.run_python(found)


def test_readme():
    found = [block for block in documents.blocks((SOURCE / "README.md").read_text(), "python") if "gdn2.jax" in block[0]]
    assert len(found) == 1
    documents.run_python(found)
