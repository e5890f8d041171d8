"""What gdn2.torch's functions return and refuse."""

import os

import pytest
import token_loop

torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")

import gdn2.torch as gt  # noqa: E402


@pytest.fixture
def x():
    torch.manual_seed(0)
    shape = (2, 19, 3)
    return {
        "q": torch.randn(*shape, 5),
        "k": torch.randn(*shape, 5) / 2,
        "v": torch.randn(*shape, 7),
        "g": -torch.rand(*shape, 5),
        "beta": torch.rand(*shape),
    }


def test_what_is_returned(x):
    o, state = gt.chunk_kda(**x)
    assert o.shape == (2, 19, 3, 7) and o.dtype == torch.float32 and state is None
    o, state = gt.chunk_kda(**{name: value.bfloat16() for name, value in x.items()}, output_final_state=True)
    assert o.dtype == torch.bfloat16 and state.dtype == torch.float32 and state.shape == (2, 3, 5, 7)


def test_states_with_values_first(x):
    h0 = torch.randn(2, 3, 5, 7)
    o, state = gt.chunk_kda(**x, initial_state=h0, output_final_state=True)
    turned = h0.transpose(2, 3).contiguous().requires_grad_()
    for function in (gt.chunk_kda, gt.fused_recurrent_kda):
        again, other = function(**x, initial_state=turned, output_final_state=True, state_v_first=True)
        assert torch.equal(again, o) and torch.equal(other, state.transpose(2, 3)) and other.is_contiguous()
        (gradient,) = torch.autograd.grad(again.sum(), turned)
        assert gradient.shape == turned.shape and gradient.abs().max() > 1e-3
    with pytest.warns(DeprecationWarning, match="state_v_first"):
        assert torch.equal(gt.chunk_kda(**x, initial_state=turned, transpose_state_layout=True)[0], o)


def test_defaults(x):
    o, _ = gt.chunk_kda(**x)
    assert torch.equal(gt.chunk_kda(**x, scale=5**-0.5, safe_gate=True, disable_recompute=True, chunk_size=32)[0], o)
    tensors = [x[name] for name in ("q", "k", "v")]
    ones = torch.ones(2, 19, 3)
    assert torch.equal(gt.fused_recurrent_delta_rule(*tensors)[0], gt.chunk_delta_rule(*tensors, ones)[0])
    both, _ = gt.fused_recurrent_gated_delta_rule(*tensors, g=x["g"][..., 0], gk=x["g"], beta=x["beta"])
    assert torch.equal(both, gt.chunk_kda(*tensors, x["g"] + x["g"][..., :1], x["beta"])[0])


@pytest.mark.parametrize("bound", [None, -5.0])
def test_raw_gates_in_float64(x, bound):
    """Decay and beta are made with the precision of the call."""
    y = {name: value.double() for name, value in x.items()}
    A_log, dt_bias = torch.randn(3).double(), torch.randn(3 * 5).double()
    raw = y["g"] + dt_bias.reshape(3, 5)
    rate = A_log.exp()[:, None]
    g = -rate * torch.nn.functional.softplus(raw) if bound is None else bound * (rate * raw).sigmoid()
    expected, _ = gt.chunk_kda(**dict(y, g=g, beta=2 * y["beta"].sigmoid()))
    gates = {"use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True, "allow_neg_eigval": True, "lower_bound": bound}
    o, _ = gt.chunk_kda(**y, **gates, A_log=A_log, dt_bias=dt_bias)
    assert o.dtype == torch.float64 and expected.abs().max() > 0.1
    assert (o - expected).abs().max() < 1e-13


@pytest.mark.parametrize("autocast", [False, True])
def test_rates_stay_wide(autocast):
    """ln 16 is 2.7726; in bfloat16 it would be 2.7656, a decay that is slower by 0.7 %, which long sequences add up."""
    sample = {name: torch.from_numpy(value) for name, value in token_loop.sample("kda", B=1, T=400).items()}
    narrow = {name: sample[name].bfloat16() for name in ("q", "k", "v", "beta")}
    raw, A_log = (sample["g"] - 9).bfloat16(), torch.full((3,), 2.7726)
    states = []
    for rate in (A_log, A_log.bfloat16().float()):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            rest = dict(use_gate_in_kernel=True, A_log=rate, output_final_state=True)
            o, h_final = gt.chunk_kda(**narrow, g=raw, **rest)
        assert o.dtype == torch.bfloat16 and h_final.dtype == torch.float32
        states.append(h_final)
    x = {name: value.double().numpy() for name, value in narrow.items()}
    x["g"] = (-A_log.double().exp()[0] * torch.nn.functional.softplus(raw.double())).numpy()
    wanted = torch.from_numpy(token_loop.forward(x, "kda")[0]["h_final"])
    errors = [((h - wanted).norm() / wanted.norm()).item() for h in states]
    assert wanted.norm() > 1 and errors[0] < 2e-6 and errors[1] > 1e-4


REFUSED = {
    "an unknown keyword": (lambda x: gt.chunk_kda(**x, head_first=False), TypeError, "head_first"),
    "an unknown keyword of GLA": (lambda x: gt.chunk_gla(x["q"], x["k"], x["v"], x["g"], beta=1), TypeError, "beta"),
    "intermediate states where gradients may be asked for": (
        lambda x: gt.chunk_kda(**x, return_intermediate_states=True),
        RuntimeError,
        "return_intermediate_states is True; .* it must be under torch.inference_mode()",
    ),
    "a graph of another number of sequences": (
        lambda x: gt.chunk_kda(**x, use_graph=True, cu_seqlens=torch.tensor([0, 19]), max_num_seqs=2),
        ValueError,
        "cu_seqlens has 1 sequences; it must have max_num_seqs = 2",
    ),
    "intermediate states of a graph": (
        lambda x: gt.chunk_kda(**x, use_graph=True, return_intermediate_states=True),
        NotImplementedError,
        "return_intermediate_states with use_graph",
    ),
    "context parallelism": (lambda x: gt.chunk_kda(**x, cp_context=object()), NotImplementedError, "cp_context is not supported"),
    "decay of values of another width": (
        lambda x: gt.fused_recurrent_gla(x["q"], x["k"], x["v"], gv=x["q"]),
        ValueError,
        r"gv has shape \(2, 19, 3, 5\); it must be \(2, 19, 3, 7\)",
    ),
    "decay of values and a gate": (
        lambda x: gt.fused_recurrent_gated_delta_rule(x["q"], x["k"], x["v"], gv=x["v"], use_gate_in_kernel=True),
        NotImplementedError,
        "gv together with use_gate_in_kernel is not supported",
    ),
    "a state that is no state of decayed values": (
        lambda x: gt.fused_recurrent_gla(x["q"], x["k"], x["v"], gv=x["v"], initial_state=torch.zeros(2, 3, 7, 5)),
        ValueError,
        r"initial_state has shape \(2, 3, 7, 5\); it must be \(2, 3, 5, 7\)",
    ),
    "two sigmoids of a given beta": (
        lambda x: gt.chunk_kda(**x, allow_neg_eigval=True),
        ValueError,
        "use_beta_sigmoid_in_kernel",
    ),
    "a gate without A_log": (lambda x: gt.chunk_kda(**x, use_gate_in_kernel=True), ValueError, "A_log is None"),
    "beta over channels": (
        lambda x: gt.chunk_kda(**dict(x, beta=x["q"])),
        ValueError,
        r"beta has shape \(2, 19, 3, 5\); it must be \[B, T, HV\]",
    ),
    "a vector decay of Gated DeltaNet": (
        lambda x: gt.chunk_gated_delta_rule(**x),
        ValueError,
        r"g has shape .*; it must be \[B, T, HV\]",
    ),
    "a chunk size": (lambda x: gt.chunk_kda(**x, chunk_size=65), ValueError, "chunk_size is 65"),
    "packed sequences in a batch": (
        lambda x: gt.chunk_kda(**x, cu_seqlens=torch.tensor([0, 19])),
        ValueError,
        "B is 2; with cu_seqlens it must be 1",
    ),
    "integers": (lambda x: gt.chunk_kda(**dict(x, v=x["v"].int())), TypeError, "v has element type torch.int32"),
    "another device": (
        lambda x: gt.chunk_kda(**{name: y.to("meta") for name, y in x.items()}),
        ValueError,
        "q is on meta; it must be on the CPU",
    ),
    "a state of another batch": (
        lambda x: gt.chunk_kda(**x, initial_state=torch.zeros(1, 3, 5, 7)),
        ValueError,
        r"h0 has shape \(1, 3, 5, 7\); it must be \(2, 3, 5, 7\)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors(x, name):
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message):
        call(x)


@pytest.mark.skipif(not os.path.exists("/sys/kernel/mm/transparent_hugepage"), reason="this system has no huge pages")
def test_large_results_ask_for_huge_pages():
    def asked(x):
        inside, found = x.data_ptr() + x.nbytes // 2, False
        for line in open("/proc/self/smaps"):
            first, *rest = line.split()
            if not first.endswith(":"):
                begin, end = (int(address, 16) for address in first.split("-"))
                found = begin <= inside < end
            elif found and first == "VmFlags:":
                return "hg" in rest

    plain = torch.empty(16 << 20)
    assert asked(gt._tensors.fresh(plain, plain.shape)) and not asked(plain)
