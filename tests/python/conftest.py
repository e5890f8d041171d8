"""What the tests in Python share: where the library and the program are, and how to run the program."""

import os
import subprocess
from pathlib import Path

import hypothesis
import pytest

SOURCE = Path(__file__).resolve().parents[2]

# Two devices for the tests of shard_map, should JAX be imported.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

# The same examples on every machine and every run: a failure can be repeated.
hypothesis.settings.register_profile("gdn2", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.load_profile("gdn2")


def pytest_configure(config):
    config.addinivalue_line("markers", "program: uses the gdn2 program only, so it also runs on a sanitized build")


skipped_files = []  # as a whole: by importorskip, for one


def pytest_collectreport(report):
    if report.skipped:
        skipped_files.append(report.nodeid)


def pytest_sessionfinish(session, exitstatus):
    """A file that needs PyTorch as a whole is skipped, not failed, where PyTorch was left out on purpose."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and skipped_files and os.environ.get("GDN2_TORCH") == "OFF":
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(scope="session")
def library():
    """Path of libgdn2.so."""
    return Path(os.environ.get("GDN2_LIBRARY", SOURCE / "build" / "libgdn2.so"))


@pytest.fixture(scope="session")
def program():
    """Path of the gdn2 program."""
    return Path(os.environ.get("GDN2_PROGRAM", SOURCE / "build" / "gdn2"))


@pytest.fixture
def gdn2(program):
    """gdn2("run", "--rule", ...): runs the program and returns what it printed and its exit code."""

    def run(*arguments, timeout=600, **options):
        command = [program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, **options)

    return run
