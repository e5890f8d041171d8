"""What the house tests share: the source and build folders, and the tracked files."""

import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def source():
    return Path(os.environ.get("GDN2_SOURCE", Path(__file__).resolve().parents[2]))


@pytest.fixture(scope="session")
def build(source):
    return Path(os.environ.get("GDN2_BUILD", source / "build"))


@pytest.fixture(scope="session")
def library(build):
    return Path(os.environ.get("GDN2_LIBRARY", build / "libgdn2.so"))


@pytest.fixture(scope="session")
def run():
    """Runs a command and returns its standard output; a failure shows all that was printed."""

    def call(*command, **options):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
        assert done.returncode == 0, f"{command} returned {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return call


@pytest.fixture(scope="session")
def files(source):
    """Every file of the project, as paths relative to its root: what git tracks or would track."""
    if not (source / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "-c", f"safe.directory={source}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=source, capture_output=True, check=True,
    )
    names = [name for name in listing.stdout.decode().split("\0") if name]
    return [name for name in dict.fromkeys(names) if (source / name).is_file()]
