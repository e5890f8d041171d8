"""tools/deps.sh sees what is missing, on a machine with nothing and with a CMake that is old or new enough."""

import shutil
import subprocess

import pytest

BUILD = ["cmake", "ninja-build", "gcc", "libc6-dev", "pkg-config", "libcjson-dev", "libopenblas-dev"]


def missing(source, tmp_path, version=None):
    """The packages it names where there is no apt-get to install them, and no program but awk and perhaps a CMake."""
    (tmp_path / "awk").symlink_to(shutil.which("awk"))
    if version:
        cmake = tmp_path / "cmake"
        cmake.write_text(f"#!/bin/sh\necho 'cmake version {version}'\n")
        cmake.chmod(0o755)
    command = [shutil.which("sh"), source / "tools" / "deps.sh", "build"]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 1 and not done.stdout
    return done.stderr.strip().partition("(names of Debian packages): ")[2].split()


def test_nothing_is_there(source, tmp_path):
    assert missing(source, tmp_path) == BUILD


@pytest.mark.parametrize("version", ["2.99.0", "3.24.4"])
def test_cmake_is_too_old(source, tmp_path, version):
    assert missing(source, tmp_path, version) == BUILD


@pytest.mark.parametrize("version", ["3.25.1", "3.31.6", "4.0.0"])
def test_cmake_is_new_enough(source, tmp_path, version):
    assert missing(source, tmp_path, version) == BUILD[1:]
