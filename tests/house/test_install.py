"""The installed library can be found and used: by pkg-config, by CMake's find_package, from C and from C++."""

import os
import shlex
import shutil
import subprocess

import pytest

CC = os.environ.get("GDN2_CC", "cc")
CXX = shutil.which("clang++" if "clang" in CC else "g++")
REMEMBERED = "token 0 reads 1 2\ntoken 1 reads 3 4\ntoken 2 reads 5 6\ntoken 3 reads 3 4\n"
# What the programs in examples/ print: worked out by hand.
PRINTED = {
    "remember": REMEMBERED,
    "serve": "all: slot 2 reads 103\nall: slot 0 reads 107\nall: slot 3 reads 111\n"
    "two: slot 2 reads 203\ntwo: slot -1 reads 0\ntwo: slot 3 reads 211\nnew: slot 0 reads 100\nrefused\n",
    "packed": "text 0 ends with 4 and 2\ntext 1 ends with 7 and 8\ntext 2 ends with 55 and 20\n",
    "drafts": "drafts read 11 31 61 101\nafter 2 of them the next token reads 36\n",
}
# What needs the component mpi: test_mpi.py runs it.
WITH_MPI = {"ranks"}


@pytest.fixture(scope="module")
def prefix(run, build, tmp_path_factory):
    """A prefix that was not known when the build was configured."""
    folder = tmp_path_factory.mktemp("install") / "a prefix"
    run("cmake", "--install", build, "--prefix", folder)
    return folder


@pytest.fixture(scope="module")
def libdir(prefix):
    (library,) = prefix.rglob("libgdn2.so")
    return library.parent


@pytest.fixture
def pkg_config(run, libdir):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(libdir / "pkgconfig")}

    def flags(*options):
        packages = [] if "gdn2_mpi" in options else ["gdn2"]
        return shlex.split(run("pkg-config", *options, *packages, env=environment))

    return flags


def version(source):
    text = (source / "include" / "gdn2.h").read_text()
    return [text.split(f"GDN2_VERSION_{part} ")[1].split()[0] for part in ("MAJOR", "MINOR", "PATCH")]


def test_soname_is_the_interface_version(run, source, libdir):
    major, minor, patch = version(source)
    soname = f"libgdn2.so.{major}.{minor}" if major == "0" else f"libgdn2.so.{major}"
    assert f"Library soname: [{soname}]" in run("readelf", "-d", libdir / "libgdn2.so")
    assert (libdir / "libgdn2.so").resolve().name == f"libgdn2.so.{major}.{minor}.{patch}"


def test_library_needs_no_path_of_the_build(run, libdir):
    dynamic = run("readelf", "-d", libdir / "libgdn2.so")
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic


def test_headers_are_installed(source, prefix):
    headers = {header for header in (source / "include").glob("*.h") if header.stem != "gdn2_mpi" or "GDN2_MPI_LIBRARY" in os.environ}
    assert {header.name for header in headers} == {header.name for header in (prefix / "include").glob("*.h")}
    for header in headers:
        assert (prefix / "include" / header.name).read_bytes() == header.read_bytes()


def test_pkg_config_version(pkg_config, source):
    assert pkg_config("--modversion") == [".".join(version(source))]


def test_every_example_has_its_output(source):
    assert {path.stem for path in (source / "examples").glob("*.c")} == set(PRINTED) | WITH_MPI


@pytest.mark.parametrize("example", PRINTED)
def test_c_program_by_pkg_config(run, source, pkg_config, libdir, tmp_path, example):
    target = tmp_path / example
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    run(CC, *strict, source / "examples" / f"{example}.c", *pkg_config("--cflags", "--libs"), "-o", target)
    assert run(target, env={"LD_LIBRARY_PATH": str(libdir)}) == PRINTED[example]


def test_cxx_program_by_pkg_config(run, source, pkg_config, libdir, tmp_path):
    unit, target = tmp_path / "unit.cc", tmp_path / "unit"
    unit.write_text('#include <gdn2.h>\n#include <cstdio>\nint main() { std::puts(gdn2_version()); }\n')
    run(CXX, "-std=c++17", unit, *pkg_config("--cflags", "--libs"), "-o", target)
    assert run(target, env={"LD_LIBRARY_PATH": str(libdir)}) == ".".join(version(source)) + "\n"


def test_c_programs_by_find_package(run, source, prefix, tmp_path):
    run("cmake", "-S", source / "examples", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={CC}")
    run("cmake", "--build", tmp_path)
    assert {example: run(tmp_path / example) for example in PRINTED} == PRINTED


def test_find_package_refuses_another_interface(source, prefix, tmp_path):
    major, minor, _ = map(int, version(source))
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.16)\nproject(other C)\nfind_package(gdn2 {major}.{minor + 1} REQUIRED)\n"
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "version" in done.stderr


def test_destdir_is_put_before_the_prefix(run, build, tmp_path):
    run("cmake", "--install", build, "--prefix", "/opt/gdn2", env={**os.environ, "DESTDIR": str(tmp_path)})
    assert (tmp_path / "opt" / "gdn2" / "include" / "gdn2.h").is_file()


@pytest.mark.skipif("GDN2_PROGRAM" not in os.environ, reason="built without the program")
def test_installed_program_finds_its_library(run, prefix):
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    assert "gdn2" in run(prefix / "bin" / "gdn2", "--help", env=environment)
