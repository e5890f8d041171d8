"""Training in PyTorch: the forward keeps states and the residual for its backward, and nothing else makes it keep any."""

import struct
import types

import numpy as np
import pytest
import token_loop

torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")

import gdn2  # noqa: E402
import gdn2.torch as gt  # noqa: E402
from gdn2 import _layout  # noqa: E402

torch.set_num_threads(1)
INPUTS = ("q", "k", "v", "g", "b", "w")
SHAPE = dict(B=2, T=300, H=2, K=5, V=7)
OFFSETS = np.array([0, 140, 140, 410, 600])


@pytest.fixture
def calls(monkeypatch):
    """Of the library, in order: (function, address of the snapshots, snapshot_every, address of the residual)."""
    found, library = [], gt._ops._library

    def spy(name, layout):
        where = layout.offsets()

        def call(packed):
            fields = ("P", "snapshots.data"), ("q", "snapshot_every"), ("P", "residual.data")
            found.append((name, *(struct.unpack_from(kind, packed, where[field][0])[0] for kind, field in fields)))
            return getattr(library, f"gdn2_{name}")(packed)

        return call

    spies = dict(gdn2_forward=spy("forward", _layout.FORWARD), gdn2_backward=spy("backward", _layout.BACKWARD))
    monkeypatch.setattr(gt._ops, "_library", types.SimpleNamespace(**spies))
    return found


def sample(**shape):
    """Inputs that need gradients, and the NumPy arrays."""
    arrays = token_loop.sample("gdn2", **SHAPE | shape)
    return {name: torch.from_numpy(arrays[name]).requires_grad_() for name in (*INPUTS, "h0")}, arrays


def train(x, arrays, function=gt.chunk_gdn2, **options):
    o, h = function(*(x[name] for name in INPUTS), initial_state=x["h0"], output_final_state=True, **options)
    torch.autograd.backward((o, h), [torch.from_numpy(arrays[name]) for name in ("do", "dh_final")])


def expect_bits(x, arrays, **options):
    """The gradients are those of the library, which computes the states again."""
    q, k, v, g, b, w = (arrays[name] for name in INPUTS)
    d = gdn2.backward(q, k, v, g, b, w, h0=arrays["h0"], d_o=arrays["do"], dh_final=arrays["dh_final"], **options)
    for name, value in x.items():
        assert np.abs(d["d" + name]).max() > 1e-3 and np.array_equal(value.grad.numpy(), d["d" + name]), name


def expect_kept(calls, states, residual=True):
    (first, *wrote), (second, *read) = calls
    assert (first, second) == ("forward", "backward") and wrote == read
    assert (wrote[0] != 0, wrote[1], wrote[2] != 0) == (states, 128 if states else 0, residual)


def packed():
    x, arrays = sample(B=1, T=600)
    arrays |= {name: np.repeat(arrays[name], 4, 0) for name in ("h0", "dh_final")}
    return x | {"h0": torch.from_numpy(arrays["h0"]).requires_grad_()}, arrays


def test_states_are_kept(calls):
    x, arrays = sample()
    train(x, arrays)
    expect_kept(calls, True)
    expect_bits(x, arrays)


@pytest.mark.parametrize("dynamic", [False, True])
def test_states_are_kept_when_compiled(calls, dynamic):
    x, arrays = sample()
    train(x, arrays, torch.compile(gt.chunk_gdn2, fullgraph=True, backend="aot_eager", dynamic=dynamic))
    expect_kept(calls, True)
    expect_bits(x, arrays)


def test_states_are_kept_under_checkpoint(calls):
    """The first pass, whose results are thrown away, and the second look the same to PyTorch."""
    x, arrays = sample()
    train(x, arrays, lambda *y, **o: torch.utils.checkpoint.checkpoint(gt.chunk_gdn2, *y, use_reentrant=False, **o))
    expect_kept(calls[1:], True)
    expect_bits(x, arrays)


def test_packed_sequences(calls):
    x, arrays = packed()
    train(x, arrays, cu_seqlens=torch.from_numpy(OFFSETS))
    expect_kept(calls, True)
    expect_bits(x, arrays, cu_seqlens=OFFSETS)


@pytest.mark.parametrize("dynamic", [False, True])
def test_packed_sequences_when_compiled(calls, dynamic):
    """Lengths that the compiler does not know: the room for the states is that of the tokens."""
    compiled = torch.compile(gt.chunk_gdn2, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for offsets in (OFFSETS, np.array([0, 1, 300, 599, 600])):
        x, arrays = packed()
        train(x, arrays, compiled, cu_seqlens=torch.from_numpy(offsets))
        expect_kept(calls[-2:], True)
        expect_bits(x, arrays, cu_seqlens=offsets)


def test_packed_sequences_under_checkpoint(calls):
    x, arrays = packed()
    again = lambda *y, **o: torch.utils.checkpoint.checkpoint(gt.chunk_gdn2, *y, use_reentrant=False, **o)  # noqa: E731
    train(x, arrays, again, cu_seqlens=torch.from_numpy(OFFSETS))
    expect_kept(calls[1:], True)
    expect_bits(x, arrays, cu_seqlens=OFFSETS)


def test_many_short_sequences(calls):
    """One of 128 tokens and 17 of one, each with its initial state: room for one state."""
    x, arrays = sample(B=1, T=145)
    offsets = np.array([0, *range(128, 146)])
    r = np.random.default_rng(4)
    arrays |= {name: r.normal(size=(18, 2, 5, 7)).astype(np.float32) for name in ("h0", "dh_final")}
    x["h0"] = torch.from_numpy(arrays["h0"]).requires_grad_()
    train(x, arrays, cu_seqlens=torch.from_numpy(offsets))
    expect_kept(calls, True)
    expect_bits(x, arrays, cu_seqlens=offsets)


@pytest.mark.parametrize("shape, dtype", [(dict(T=127), torch.float32), (dict(T=130), torch.float64)])
def test_short_sequences_and_float64(calls, shape, dtype):
    x, arrays = sample(**shape)
    x = {name: value.detach().to(dtype).requires_grad_() for name, value in x.items()}
    o, _ = gt.chunk_gdn2(*(x[name] for name in INPUTS), initial_state=x["h0"])
    o.sum().backward()
    expect_kept(calls, False, residual=dtype == torch.float32)


def test_inference_keeps_none(calls):
    x, _ = sample()
    with torch.no_grad():
        gt.chunk_gdn2(*(x[name] for name in INPUTS))
    gt.chunk_gdn2(*(x[name].detach() for name in INPUTS))
    torch.compile(gt.chunk_gdn2, fullgraph=True, backend="aot_eager")(*(x[name].detach() for name in INPUTS))
    assert calls == [("forward", 0, 0, 0)] * 3


def test_too_little_room_is_refused():
    x, arrays = sample()
    arguments = (*(x[name].detach() for name in INPUTS), *(None,) * 5, None, 0, 0, 0.0, 0, 0, False)
    with pytest.raises(ValueError, match=r"snapshots has shape \(2, 1, 2, 5, 7\); it must be \(2, 2, 2, 5, 7\)"):
        torch.ops.gdn2.forward(*arguments, False, False, 1, False, 128)
    incoming = torch.from_numpy(arrays["do"]), None, [True] * 10
    with pytest.raises(ValueError, match="snapshots has shape"):
        torch.ops.gdn2.forward_backward(*arguments, torch.zeros(2, 1, 2, 5, 7), torch.zeros(0), *incoming)
    with pytest.raises(ValueError, match=r"residual has shape \(2, 299, 2, 7\); it must be \(2, 300, 2, 7\)"):
        torch.ops.gdn2.forward_backward(*arguments, torch.zeros(0), torch.zeros(2, 299, 2, 7), *incoming)
