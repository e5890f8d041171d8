"""The public header compiles on its own, first in a file, in every language that will include it."""

import os
import shutil

import pytest

CC = os.environ.get("GDN2_CC", "cc")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror", "-fsyntax-only"]


@pytest.mark.parametrize("standard", ["c11", "c17", "gnu11"])
@pytest.mark.parametrize("header", ["gdn2.h", "gdn2_seed.h", "gdn2_step.h", "gdn2_layer.h"])
def test_header_in_c(source, run, tmp_path, standard, header):
    unit = tmp_path / "unit.c"
    unit.write_text(f"#include <{header}>\n#include <{header}>\nint unit_is_not_empty;\n")
    run(CC, f"-std={standard}", *STRICT, "-Wstrict-prototypes", f"-I{source}/include", unit)


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
def test_header_in_cxx(source, run, tmp_path, standard):
    cxx = shutil.which("clang++" if "clang" in CC else "g++")
    assert cxx, "no C++ compiler beside the C compiler"
    unit = tmp_path / "unit.cc"
    unit.write_text("#include <gdn2.h>\nint main() { return gdn2_version() == nullptr; }\n")
    run(cxx, f"-std={standard}", *STRICT, f"-I{source}/include", unit)


def test_header_is_checked_strictly(source, run, tmp_path):
    unit = tmp_path / "unit.c"
    unit.write_text("#include <gdn2.h>\nint narrow(long long x) { return x; }\n")
    with pytest.raises(AssertionError, match="-Wconversion|-Wimplicit-int-conversion|-Wshorten-64-to-32|conversion"):
        run(CC, "-std=c11", *STRICT, f"-I{source}/include", unit)
