"""bench/peers: that what it compares the peers with is right, and that it would reject a peer that is wrong."""

import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

SOURCE = Path(__file__).resolve().parents[2]
PEERS = SOURCE / "bench" / "peers"
sys.path.insert(0, str(PEERS))

import install  # noqa: E402
import library  # noqa: E402
import measure  # noqa: E402
import problem  # noqa: E402

SMALL = problem.Shape(B=2, T=40, H=3, K=24, V=16)


@pytest.fixture(scope="module")
def compiled():
    return library.compiled(Path(os.environ.get("GDN2_BUILD", SOURCE / "build")).resolve())


@pytest.mark.parametrize("rule", problem.RULES)
@pytest.mark.parametrize("op", ["forward", "train"])
def test_the_yardstick_is_right(compiled, rule, op, monkeypatch):
    monkeypatch.setattr(measure, "SMALL", SMALL)
    assert 0 < measure.checked(library.Library(compiled, rule), rule, op, 1) <= 2e-6


@pytest.mark.parametrize("rule", ["gdn2", "gdn"])
def test_the_yardstick_in_bfloat16(compiled, rule, monkeypatch):
    monkeypatch.setattr(measure, "SMALL", SMALL)
    assert 1e-4 < measure.checked(library.Library(compiled, rule, "bf16"), rule, "forward", 1) <= 1e-2


@pytest.fixture
def small_decode(monkeypatch):
    monkeypatch.setattr(measure, "SMALL_DECODE", problem.Shape(B=5, T=1, H=3, K=24, V=16))


@pytest.mark.parametrize("rule", problem.RULES)
def test_the_yardstick_decodes(compiled, rule, small_decode):
    assert 0 < measure.checked(library.Library(compiled, rule), rule, "decode", 1) <= 1e-6


@pytest.mark.parametrize(("dtype", "least", "most"), [("f32", 0, 2e-6), ("bf16", 1e-4, 1e-2)])
def test_the_yardstick_decodes_from_raw_inputs(compiled, dtype, least, most, small_decode):
    assert least < measure.checked(library.Library(compiled, "gdn", dtype, raw=True), "gdn", "decode", 1) <= most


class WrongDecode(library.Library):
    """A peer whose one input is a little off, or whose rows are taken for each other."""

    def __init__(self, compiled, spoilt):
        super().__init__(compiled, "gdn", raw=True)
        self.spoilt = spoilt

    def start_decode(self, x, threads):
        if self.spoilt == "slot":
            super().start_decode(x | {"slot": x["slot"][::-1].copy()}, threads)
        elif self.spoilt == "pool":
            super().start_decode(x | {"pool": 0.999 * x["pool"]}, threads)
        else:
            super().start_decode(x | {"raw": x["raw"] | {self.spoilt: 0.99 * x["raw"][self.spoilt]}}, threads)


@pytest.mark.parametrize("spoilt", ["v", "a", "b", "A_log", "dt_bias", "pool", "slot"])
def test_a_wrong_decode_is_rejected(compiled, spoilt, small_decode):
    with pytest.raises(ArithmeticError, match="relative error"):
        measure.checked(WrongDecode(compiled, spoilt), "gdn", "decode", 1)


def test_decode_results_have_what_the_table_shows(compiled):
    options = Namespace(B=0, T=4096, H=0, K=16, V=16, repeats=3, min_time=0.0, max_time=60.0)
    r = measure.one(library.Library(compiled, "kda"), library.Library(compiled, "kda"), "decode", options, 1)
    assert (r["B"], r["T"], r["H"]) == (64, 1, 32)
    assert r["tok_heads_per_s"] == pytest.approx(64 * 32 / (1e-3 * r["ms"]))
    assert r["gflops_useful"] == pytest.approx(6e-9 * 16 * 16 * r["tok_heads_per_s"])


class Wrong(library.Library):
    """A peer whose one input is a little off."""

    def __init__(self, compiled, rule, spoilt):
        super().__init__(compiled, rule)
        self.spoilt = spoilt

    def start(self, x, threads):
        super().start(x | {self.spoilt: 0.999 * x[self.spoilt]}, threads)


@pytest.mark.parametrize("op", ["forward", "train"])
@pytest.mark.parametrize("spoilt", ["q", "k", "v", "g", "b", "w"])
def test_a_wrong_peer_is_rejected(compiled, op, spoilt, monkeypatch):
    monkeypatch.setattr(measure, "SMALL", SMALL)
    with pytest.raises(ArithmeticError, match="relative error"):
        measure.checked(Wrong(compiled, "gdn2", spoilt), "gdn2", op, 1)


def test_results_have_what_the_table_shows(compiled):
    options = Namespace(B=1, T=32, H=2, K=16, V=16, repeats=3, min_time=0.0, max_time=60.0)
    peer, yardstick = library.Library(compiled, "kda"), library.Library(compiled, "kda")
    r = measure.one(peer, yardstick, "train", options, 1)
    assert r["pairs"] == 3 and r["error"] == r["gdn2_error"] <= 2e-6
    assert r["ratio"] == pytest.approx(r["ms"] / r["gdn2_ms"])
    assert r["tok_heads_per_s"] == pytest.approx(32 * 2 / (1e-3 * r["ms"]))
    assert r["gflops_useful"] == pytest.approx(22e-9 * 16 * 16 * r["tok_heads_per_s"])


def test_a_peer_that_is_not_there_is_reported(compiled, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.setattr(library, "compiled", lambda build: compiled)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
    (found,) = measure.module(Namespace(measure="onnxruntime", threads="1", ops="forward"), None)
    assert found["peer"] == "onnxruntime" and "onnx" in found["unavailable"]


def test_wrong_use_is_told():
    done = subprocess.run([sys.executable, PEERS / "run.py", "--only", "nobody"], capture_output=True, text=True)
    assert done.returncode == 2 and "nobody" in done.stderr


def test_every_peer_has_its_module():
    assert {f"peer_{name}.py" for name in install.PACKAGES} == {path.name for path in PEERS.glob("peer_*.py")}


def test_inputs_are_like_a_trained_layers():
    x = problem.inputs("gdn2", SMALL)
    for name in "qk":
        assert np.linalg.norm(x[name], axis=-1) == pytest.approx(1, abs=1e-5)
    assert x["g"].max() < 0 and 0 < x["b"].min() and x["b"].max() < 1
    assert "h0" not in x and all(value.dtype == np.float32 for value in x.values())
