"""tools/demo.sh: the whole way from a text to the table of errors and to a model's own text; no failure on the way is swallowed."""

import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
OUTPUTS = ["o", "h_final", "dq", "dk", "dv", "dg", "db", "dw"]


@pytest.fixture
def programs(program, tmp_path):
    """A folder with the two programs, so that the demo's files do not land in the build."""
    for path in [program, os.environ.get("GDN2_LAYER", program.parent / "gdn2-layer")]:
        (tmp_path / os.path.basename(path)).symlink_to(path)
    return tmp_path


def demo(*arguments, tokens=300):
    environment = {**os.environ, "TOKENS": str(tokens), "STEPS": "2"}
    command = ["sh", SOURCE / "tools" / "demo.sh", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", errors="replace", timeout=600)


def table(printed):
    """Relative error of each tensor in the table that ends the demo."""
    rows = re.findall(r"^(\w+) +\d\S+ +(\d\S+) +\d\S+ +\S+  yes$", printed.split("gdn2 check")[1], re.MULTILINE)
    return {name: float(error) for name, error in rows}


def assert_whole(done):
    assert done.returncode == 0, done.stderr
    errors = table(done.stdout)
    assert set(OUTPUTS) <= set(errors)
    assert all(0 < errors[name] < 2e-6 for name in OUTPUTS), errors
    assert re.search(r"forward [\d.]+ ms, backward [\d.]+ ms$", done.stdout, re.MULTILINE)


def test_the_documentation_is_the_default_text(programs):
    done = demo(programs)
    assert_whole(done)
    ending = done.stdout.split("gdn2 generate")[1]
    assert "tokens/s" in done.stdout and "The " in ending and ending.rstrip().endswith("loss.svg")
    assert (programs / "demo" / "model" / "loss.svg").exists()
    text = (programs / "demo" / "text.txt").read_bytes()
    assert text.startswith((SOURCE / "README.md").read_bytes())
    assert len(text) >= 4096


PHRASE = "The quick brown fox jumps over the lazy dog. ".encode() * 8


@pytest.mark.parametrize("text", [PHRASE, bytes(range(256)) * 2, b"\0" * 7], ids=["phrase", "every byte", "seven zeros"])
def test_any_file_is_a_text(programs, tmp_path, text):
    (tmp_path / "-some text").write_bytes(text)
    done = demo(programs, tmp_path / "-some text")
    assert_whole(done)
    assert "too short" in done.stdout and not (programs / "demo" / "model").exists()


def test_failures_are_not_swallowed(programs, tmp_path):
    missing = demo(programs, tmp_path / "missing")
    assert missing.returncode == 2 and "missing" in missing.stderr
    assert demo(tmp_path / "no-build").returncode == 1
    program = (programs / "gdn2").resolve()
    (programs / "gdn2").unlink()
    (programs / "gdn2").write_text(f'#!/bin/sh\n[ "$1" != check ] || exit 1\nexec "{program}" "$@"\n')
    (programs / "gdn2").chmod(0o755)
    assert demo(programs).returncode == 1
