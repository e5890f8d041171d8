"""The library on x86 processors that this machine is not, by qemu-user's models of them: the library, asked nothing, chooses what the
processor has, meets no instruction that it lacks, and refuses to be forced beyond it. All C tests there: tools/qemu.sh x86-64."""

import os
import platform
import shutil
import signal
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

QEMU = shutil.which("qemu-x86_64")
# Before AVX: the base of x86-64, and SSE 4.2. AVX2 with FMA, no AVX-512.
MODELS = {"qemu64": "generic", "Nehalem": "generic", "Haswell": "avx2"}
LEVELS = ["generic", "avx2", "avx512"]

pytestmark = [
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="processors of x86 only"),
    pytest.mark.skipif(QEMU is None, reason="qemu-x86_64 is not installed (Debian: qemu-user)"),
]


@pytest.fixture(scope="session")
def emulate():
    """emulate(model, command..., isa=...): the finished process. The emulator's own warnings go to standard error too."""

    def run(model, *command, isa=None):
        environment = {name: value for name, value in os.environ.items() if name != "GDN2_ISA"}
        environment |= {"OMP_WAIT_POLICY": "passive", "GDN2_TEST_EMULATOR": "1"} | ({"GDN2_ISA": isa} if isa else {})
        words = [QEMU, "-cpu", model, *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600, check=False)

    return run


@pytest.fixture(scope="session")
def program(build):
    if "GDN2_PROGRAM" not in os.environ and not (build / "gdn2").exists():
        pytest.skip("the gdn2 program is not built")
    return os.environ.get("GDN2_PROGRAM", build / "gdn2")


def inputs(K, V):
    r = np.random.default_rng(K)
    B, T, H = 1, 37, 2
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    gate = lambda n: r.uniform(0.1, 0.9, (B, T, H, n))
    x = {"q": unit(r.normal(size=(B, T, H, K))), "k": unit(r.normal(size=(B, T, H, K))), "v": r.normal(size=(B, T, H, V))}
    x |= {"g": -r.uniform(0.001, 0.3, (B, T, H, K)), "b": gate(K), "w": gate(V), "h0": r.normal(size=(B, H, K, V))}
    x |= {"do": r.normal(size=(B, T, H, V)), "dh_final": r.normal(size=(B, H, K, V))}
    return {name: value.astype(np.float32) for name, value in x.items()}


@pytest.mark.parametrize("model", MODELS)
def test_the_best_of_the_processor_is_chosen(emulate, program, model):
    done = emulate(model, program, "info")
    assert done.returncode == 0, done.stderr
    assert MODELS[model] in [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("isa ")]


@pytest.mark.parametrize("model", MODELS)
def test_every_stage_runs(emulate, program, tmp_path, model):
    """Forward and backward against float64, odd sizes and whole tiles; the seed's pipeline against this machine's own results."""
    for K, V in ((5, 19), (64, 96)):
        save_file(inputs(K, V), tmp_path / "in.safetensors")
        done = emulate(model, program, "check", "--in", tmp_path / "in.safetensors", "--backward")
        assert done.returncode == 0, done.stdout + done.stderr
    seed = ("run", "--semantics", "seed", "--bt", "32", "--bc", "16", "--backward", "--in", tmp_path / "in.safetensors", "--out")
    subprocess.run([program, *seed, tmp_path / "here.safetensors"], check=True, capture_output=True)
    done = emulate(model, program, *seed, tmp_path / "there.safetensors")
    assert done.returncode == 0, done.stderr
    here, there = load_file(tmp_path / "here.safetensors"), load_file(tmp_path / "there.safetensors")
    assert set(here) == set(there) >= {"o", "h_final", "dq", "dk", "dv", "dg", "db", "dw"}
    for name, value in here.items():
        size = np.linalg.norm(value)
        assert size > 1e-3 and np.linalg.norm(there[name] - value) <= 1e-5 * size, name


@pytest.mark.parametrize("model", MODELS)
def test_every_vector_word_runs(emulate, build, model):
    for isa in LEVELS[: LEVELS.index(MODELS[model]) + 1]:
        done = emulate(model, build / "tests" / "test_vec", isa=isa)
        assert done.returncode == 0 and "[  PASSED  ]" in done.stdout + done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("model", "isa"), [(model, isa) for model, best in MODELS.items() for isa in LEVELS[LEVELS.index(best) + 1 :]]
)
def test_a_set_beyond_the_processor_is_refused(emulate, build, program, model, isa):
    """The program says so; a test program sees GDN2_ERR_ISA, asks the processor itself, and skips (77)."""
    done = emulate(model, program, "info", isa=isa)
    assert done.returncode == 2 and f"does not have the instructions of {isa}" in done.stderr
    done = emulate(model, build / "tests" / "test_vec", isa=isa)
    assert done.returncode == 77 and f"this machine lacks {isa}" in done.stderr


@pytest.mark.parametrize(
    ("model", "march", "died"),
    [("qemu64", "x86-64-v3", True), ("Nehalem", "x86-64-v3", True), ("Haswell", "x86-64-v3", False), ("Haswell", "x86-64-v4", True)],
)
def test_the_emulator_notices(emulate, run, tmp_path, model, march, died):
    """A program that uses what the processor lacks dies of it: the tests above can fail."""
    source = tmp_path / "add.c"
    source.write_text(
        "int main(int n, char **v) {\n"
        "  typedef int ints __attribute__((vector_size(64)));\n"
        "  volatile ints x = {n, n, n, n};\n"
        "  ints y = x * x + x;\n"
        "  x = y;\n"
        "  (void)v;\n"
        "  return x[0] != n * n + n;\n"
        "}\n"
    )
    run(os.environ.get("GDN2_CC", "cc"), f"-march={march}", "-mprefer-vector-width=512", "-O2", source, "-o", tmp_path / "add")
    assert emulate(model, tmp_path / "add").returncode == (-signal.SIGILL if died else 0)
