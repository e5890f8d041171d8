"""docs/tutorial-jax.md: its blocks run one after the other and print what stands under them. And the block of the README."""

import contextlib
import io
import re

import pytest
from conftest import SOURCE

pytest.importorskip("jax", reason="jax is not installed")

DOCUMENT = SOURCE / "docs" / "tutorial-jax.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\nIt prints\n)?\n```text\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


def test_blocks_print_what_the_document_says():
    text = DOCUMENT.read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```python") > 5
    run(blocks)


def test_readme():
    blocks = [block for block in BLOCK.findall((SOURCE / "README.md").read_text()) if "gdn2.jax" in block[0]]
    assert len(blocks) == 1
    run(blocks)


def run(blocks):
    names = {}
    for code, wanted in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "block", "exec"), names)
        assert printed.getvalue() == wanted, code
