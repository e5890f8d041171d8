"""The code blocks of a document, and what the document says they print."""

import contextlib
import io
import re

_BLOCK = r"^```{}\n(.*?)^```\n(?:\nIt prints\n)?\n```(?:text)?\n(.*?)^```\n"


def blocks(text, language):
    """[(code, what it prints)]"""
    return re.findall(_BLOCK.format(language), text, re.MULTILINE | re.DOTALL)


def run_python(found):
    """Runs blocks one after the other in one set of names; they must print what stands under them."""
    names = {}
    for code, wanted in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "block", "exec"), names)
        assert printed.getvalue() == wanted, code
