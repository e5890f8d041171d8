"""gdn2 run --semantics seed: the numbers of atomic-ops 0.1.0 itself, and its diagnostics."""

import os

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from token_loop import forward, gradients, relative_error, sample

pytestmark = pytest.mark.program
WY_EPS = 1e-3
SEED = ["--semantics", "seed", "--bt", "64", "--bc", "32", "--mb", "16", "--wy-eps", str(WY_EPS)]


def run(gdn2, folder, x, *more, **options):
    save_file(x, folder / "in.safetensors")
    result = gdn2("run", "--in", folder / "in.safetensors", "--out", folder / "out.safetensors", *SEED, *more, **options)
    assert result.returncode == 0, result.stderr
    return load_file(folder / "out.safetensors"), result


def test_the_numbers_of_the_package(gdn2, tmp_path):
    package = pytest.importorskip("seed_package", reason="atomic-ops 0.1.0 and jax are not installed")
    x = sample(B=2, T=128, H=1, K=128, V=128)
    (o, h_final), wanted = package.trained(
        {n: x[n] for n in ("q", "k", "v", "w", "b", "g", "h0")}, WY_EPS, x["do"], x["dh_final"]
    )
    y, _ = run(gdn2, tmp_path, x, "--scale", package.SCALE, "--backward")
    for name, value in ({"o": o, "h_final": h_final} | wanted).items():
        assert np.sqrt(np.mean(np.square(value))) > 1e-5, name
        assert relative_error(y[name], value) <= (2e-6 if name in ("o", "h_final") else 1e-5), name


def test_the_two_semantics_differ(gdn2, tmp_path):
    x = sample(B=1, T=130, H=2, K=16, V=8)
    y, _ = run(gdn2, tmp_path, x, "--backward")
    for name, value in (forward(x)[0] | gradients(x)).items():
        assert 1e-5 < relative_error(y[name], value) < 5e-2, name


def test_without_damping_and_clips_it_is_the_rule(gdn2, tmp_path):
    x = sample(B=2, T=130, H=2, K=16, V=8)
    x["g"] = np.maximum(x["g"], -0.25)  # no pair of a chunk reaches the clip at 20
    save_file(x, tmp_path / "in.safetensors")
    out = tmp_path / "out.safetensors"
    plain = ["--bt", "64", "--bc", "64", "--mb", "16", "--wy-eps", "0"]
    for more in ((), ("--progress", "on"), ("--threads", "1")):
        result = gdn2(
            "run", "--in", tmp_path / "in.safetensors", "--out", out, "--semantics", "seed", *plain, "--backward", *more
        )
        assert result.returncode == 0, result.stderr
        y = load_file(out)
        for name, value in (forward(x)[0] | gradients(x)).items():
            assert relative_error(y[name], value) <= (2e-6 if name in ("o", "h_final") else 1e-5), name


@pytest.mark.parametrize("left_out", ["do", "dh_final", "h0"])
def test_optional_inputs(gdn2, tmp_path, left_out):
    """An absent input is the same as zeros."""
    x = sample(B=1, T=70, H=2, K=8, V=8)
    zeros, _ = run(gdn2, tmp_path, x | {left_out: np.zeros_like(x[left_out])}, "--backward")
    del x[left_out]
    absent, _ = run(gdn2, tmp_path, x, "--backward")
    for name, value in zeros.items():
        np.testing.assert_array_equal(absent[name], value, name)


def test_diagnostics(gdn2, tmp_path):
    x = sample(B=2, T=70, H=2, K=8, V=8)
    x["v"][1, 3] = 1e8
    quiet = run(gdn2, tmp_path, x)[1].stderr
    loud = run(gdn2, tmp_path, x, "--progress", "on", env=os.environ | {"GDN2_FWD_DIAG": "1"})[1].stderr
    assert "kernel_" not in quiet
    lines = [line for line in loud.splitlines() if "kernel_" in line]
    assert len(lines) == len(set(lines)) > 0  # once for each stage, not for each slice
