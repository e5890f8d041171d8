"""docs/tutorial-c.md: each program compiles without a warning, runs, and prints what stands under it."""

import os
import subprocess

import documents
import pytest
from conftest import SOURCE

TEXT = (SOURCE / "docs" / "tutorial-c.md").read_text()
PROGRAMS = documents.blocks(TEXT, "c")


def test_every_program_is_tried():
    assert len(PROGRAMS) == TEXT.count("```c\n") > 3


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_program(number, library, tmp_path):
    code, printed = PROGRAMS[number]
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(code)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{SOURCE / 'include'}"]
    link = [library, f"-Wl,-rpath,{library.parent}", "-lm"]
    subprocess.run([os.environ.get("GDN2_CC", "cc"), *strict, source, *link, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", printed)
