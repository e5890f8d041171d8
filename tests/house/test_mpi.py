"""The library for MPI ranks, where it was built (GDN2_MPI): its names, its header, and its use once it is installed."""

import os
import shutil
import subprocess

import pytest
from test_header import STRICT
from test_install import CC, PRINTED, WITH_MPI, libdir, pkg_config, prefix  # noqa: F401 (fixtures)

LIBRARY = os.environ.get("GDN2_MPI_LIBRARY")
MPIEXEC = os.environ.get("GDN2_MPIEXEC", "mpiexec")
# More ranks than cores, and root in a container, for Open MPI.
RANKS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
         "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": "1"}
NAMES = ["gdn2_mpi_backward", "gdn2_mpi_conv_dstate_final", "gdn2_mpi_conv_state", "gdn2_mpi_forward", "gdn2_mpi_kept_bytes",
         "gdn2_mpi_last_error"]

pytestmark = pytest.mark.skipif(LIBRARY is None, reason="built without GDN2_MPI")


def printed(ranks, tokens=12):
    """The last token of each rank."""
    last = [tokens * (r + 1) // ranks - 1 for r in range(ranks)]
    return "".join(f"token {t} reads {reads(t)}\n" for t in last)


def reads(t):
    """Token s has the input 3 (s + 1) and the average of three inputs as its value; token t reads the sum of the values."""
    return sum(sum(i + 1 for i in range(max(0, s - 2), s + 1)) for s in range(t + 1))


def test_sums_by_hand():
    assert reads(0) == 1 and reads(1) == 1 + 3 and reads(2) == 1 + 3 + 6 and reads(3) == 1 + 3 + 6 + 9


def test_exported_symbols(run, source):
    lines = run("nm", "-D", "--defined-only", LIBRARY).splitlines()
    assert sorted(line.split()[-1] for line in lines) == NAMES
    header = (source / "include" / "gdn2_mpi.h").read_text()
    assert all(f"{name}(" in header for name in NAMES)


def test_it_uses_what_the_library_exports(run, source):
    """The public interface is enough: nothing with gdn2_ is asked for that tests/house/symbols.txt does not list."""
    public = set((source / "tests" / "house" / "symbols.txt").read_text().split())
    asked = {line.split()[-1].partition("@")[0] for line in run("nm", "-D", "--undefined-only", LIBRARY).splitlines()}
    asked = {name for name in asked if name.startswith("gdn2_")}
    assert asked and asked <= public


@pytest.mark.parametrize("name", ["unit.c", "unit.cc"])
def test_header_alone(run, source, pkg_config, tmp_path, name):  # noqa: F811
    unit = tmp_path / name
    unit.write_text("#include <gdn2_mpi.h>\nint unit(void);\nint unit(void) { return *gdn2_mpi_last_error(); }\n")
    compiler = CC if name.endswith(".c") else shutil.which("clang++" if "clang" in CC else "g++")
    flags = [flag.replace("-I", "-isystem") if "gdn2" not in flag else flag for flag in pkg_config("--cflags", "gdn2_mpi")]
    run(compiler, *(["-std=c11"] if name.endswith(".c") else ["-std=c++17"]), *STRICT, f"-I{source}/include", *flags, unit)


def run_ranks(run, program, ranks, **environment):
    return run(MPIEXEC, "-n", ranks, program, env={**os.environ, **RANKS, **environment})


@pytest.mark.parametrize("ranks", [1, 3, 7])
def test_example_by_pkg_config(run, source, pkg_config, libdir, tmp_path, ranks):  # noqa: F811
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror")
    flags = pkg_config("--cflags", "--libs", "gdn2_mpi")
    run(CC, *strict, source / "examples" / "ranks.c", *flags, "-o", tmp_path / "ranks")
    assert run_ranks(run, tmp_path / "ranks", ranks, LD_LIBRARY_PATH=str(libdir)) == printed(ranks)


def test_example_by_find_package(run, source, prefix, tmp_path):  # noqa: F811
    assert WITH_MPI == {"ranks"} and "ranks" not in PRINTED
    run("cmake", "-S", source / "examples", "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_C_COMPILER={CC}")
    run("cmake", "--build", tmp_path, "--target", "ranks")
    assert run_ranks(run, tmp_path / "ranks", 2) == printed(2)


def test_component_is_refused_where_it_is_not(source, prefix, tmp_path):  # noqa: F811
    """An installation without it: the targets file taken away."""
    copy = tmp_path / "prefix"
    shutil.copytree(prefix, copy, symlinks=True)
    for path in copy.rglob("gdn2-mpi-targets*.cmake"):
        path.unlink()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(other C)\nfind_package(gdn2 REQUIRED COMPONENTS mpi)\n"
    )
    command = ["cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={copy}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and "mpi" in done.stderr
