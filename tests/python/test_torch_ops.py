"""The PyTorch operators: opcheck, torch.compile, autocast, second derivatives, bits of the NumPy functions."""

import multiprocessing

import numpy as np
import pytest
import token_loop

torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")

import gdn2  # noqa: E402
import gdn2.torch as gt  # noqa: E402
from gdn2.torch._step import States  # noqa: E402

torch.set_num_threads(1)
OPS = torch.ops.gdn2
OFFSETS = torch.tensor([0, 9, 9, 30])
NOTHING_KEPT = (0, False, 128)


def tensors(rule="kda", **shape):
    sample = token_loop.sample(rule, **shape)
    return {name: torch.from_numpy(value) for name, value in sample.items() if not name.startswith("d")}, sample


def needing(x):
    return {name: value.detach().clone().requires_grad_() for name, value in x.items()}


def arguments(x, cu_seqlens=None, scale=None, final_state=True, v_first=False):
    """Of gdn2.torch._ops.rule, and of the operator gdn2::forward but for what is kept."""
    names = ("q", "k", "v", "g", "b", "w", "beta", "h0")
    return (*(x.get(name) for name in names), cu_seqlens, None, None, scale, 0, 0, 0.0, 0, 0, False, final_state, v_first)


def forward(*arguments, moments=0):
    """Through the dispatcher."""
    return OPS.forward.default(*arguments, moments, moments > 0, 128)[:2]


def raw(x):
    """Arguments with everything finished by the library."""
    parameters = (torch.zeros(3, requires_grad=True), torch.ones(3, 5, requires_grad=True))
    names = ("q", "k", "v", "g", "b", "w", "beta", "h0")
    return (*(x.get(name) for name in names), None, *parameters, 0.5, 0, 1, 0.0, 1, 1, True, True, True)


def conv_arguments():
    shapes = ((2, 9, 6), (6, 4), (6,), (2, 6, 3))
    return (*(torch.randn(shape, requires_grad=True) for shape in shapes), None, True, True)


def norm_arguments():
    return *(torch.randn(shape, requires_grad=True) for shape in ((2, 3, 4), (4,), (2, 3, 4))), 0, True, 1e-5


def step_arguments():
    x, _ = tensors("gdn2")
    return (
        *(x[name][:, :2] for name in ("q", "k", "v", "g", "b", "w")),
        *(None,) * 5,
        0,
        0,
        0.0,
        0,
        0,
        False,
        *States(x["h0"].clone()),
    )


def drafting_arguments():
    """Everything a step takes."""
    start, each, history = torch.randn(3, 3, 5, 7), torch.zeros(2, 2, 3, 5, 7), torch.randn(2, 4, 3, 5, 7)
    reset, accepted = torch.tensor([True, False]), torch.tensor([0, 2])
    states = States(start, torch.zeros(3, 3, 5, 7), torch.tensor([2, 0]), reset, each, history, accepted)
    return *step_arguments()[: -len(states)], *states


CALLS = {
    "forward of KDA": (OPS.forward, lambda: (*arguments(needing(tensors("kda")[0])), *NOTHING_KEPT)),
    "forward of Gated DeltaNet-2": (
        OPS.forward,
        lambda: (*arguments(needing(tensors("gdn2")[0]), final_state=False), *NOTHING_KEPT),
    ),
    "forward of raw input": (OPS.forward, lambda: (*raw(needing(tensors("kda")[0])), *NOTHING_KEPT)),
    "forward in bfloat16": (
        OPS.forward,
        lambda: (*arguments({k: v.bfloat16() if k in "qkv" else v for k, v in tensors("gla")[0].items()}), *NOTHING_KEPT),
    ),
    "forward of packed sequences": (
        OPS.forward,
        lambda: (*arguments(needing(tensors("gdn", B=1)[0] | {"h0": torch.randn(3, 3, 5, 7)}), OFFSETS), *NOTHING_KEPT),
    ),
    "forward that keeps states and the residual": (
        OPS.forward,
        lambda: (*arguments(needing(tensors("gdn2", T=130)[0])), 1, True, 128),
    ),
    "conv": (OPS.conv, conv_arguments),
    "norm": (OPS.norm, norm_arguments),
    "step": (OPS.step, step_arguments),
    "step with drafts": (OPS.step, drafting_arguments),
}


@pytest.mark.parametrize("name", CALLS)
def test_opcheck(name):
    operator, make = CALLS[name]
    results = torch.library.opcheck(operator.default, make())
    assert set(results.values()) == {"SUCCESS"}


def test_opcheck_of_the_backward():
    x, sample = tensors("kda")
    none = torch.empty(2, 0, 3, 5, 7), torch.empty(0)
    gradients = (*none, torch.from_numpy(sample["do"]), torch.from_numpy(sample["dh_final"]), [True] * 5 + [False] + [True] * 4)
    results = torch.library.opcheck(OPS.forward_backward.default, (*arguments(x)[:-2], *gradients))
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("rule", token_loop.RULES)
def test_gradients_have_the_bits_of_numpy(rule):
    """Through the dispatcher and past it."""
    x, sample = tensors(rule)
    given = {name: sample[name] for name in ("g", "b", "w", "beta", "h0") if name in sample}
    o, h_final = gdn2.forward(sample["q"], sample["k"], sample["v"], **given)
    d = gdn2.backward(sample["q"], sample["k"], sample["v"], **given, d_o=sample["do"], dh_final=sample["dh_final"])
    for call in (forward, gt._ops.rule):
        y = needing(x)
        results = call(*arguments(y))
        assert all(np.array_equal(ours.detach().numpy(), theirs) for ours, theirs in zip(results, (o, h_final)))
        torch.autograd.backward(results, [torch.from_numpy(sample[name]) for name in ("do", "dh_final")])
        for name, value in y.items():
            assert np.array_equal(value.grad.numpy(), d["d" + name]), name


def test_one_output_alone_has_gradients():
    x, sample = tensors("kda")
    y = needing(x)
    _, h_final = gt.chunk_kda(*(y[name] for name in ("q", "k", "v", "g", "beta")), initial_state=y["h0"], output_final_state=True)
    h_final.backward(torch.from_numpy(sample["dh_final"]))
    d = gdn2.backward(
        *(sample[name] for name in ("q", "k", "v", "g")), beta=sample["beta"], h0=sample["h0"], dh_final=sample["dh_final"]
    )
    assert all(np.array_equal(y[name].grad.numpy(), d["d" + name]) for name in y) and np.abs(d["dh0"]).max() > 1e-3


def test_strided_tensors():
    x, _ = tensors("gdn2")
    expected = forward(*arguments(x))
    turned = {name: value.transpose(1, 2).contiguous().transpose(1, 2) for name, value in x.items()}
    apart = {name: value if name == "h0" else value.repeat_interleave(2, dim=-1)[..., ::2] for name, value in x.items()}
    for y in (turned, apart):
        assert not all(value.is_contiguous() for value in y.values())
        assert all(torch.equal(one, other) for one, other in zip(forward(*arguments(y)), expected))


def test_gradcheck_in_float64():
    x, _ = tensors("kda", B=1, T=5, H=2, K=3, V=2)
    y = {name: value.double().requires_grad_() for name, value in x.items()}
    names = tuple(y)
    assert torch.autograd.gradcheck(lambda *values: forward(*arguments(dict(zip(names, values)))), tuple(y.values()))


def test_second_derivatives_are_refused():
    for call in (forward, gt._ops.rule):
        y = needing(tensors("kda")[0])
        (first,) = torch.autograd.grad(call(*arguments(y))[0].square().sum(), y["q"], create_graph=True)
        with pytest.raises(RuntimeError, match="gdn2 has no second derivatives"):
            first.sum().backward()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(12, 3 * (5 + 5 + 7))
        self.gates = torch.nn.Linear(12, 3 * 6)

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 17)).split((5, 5, 7), dim=-1)
        with torch.autocast("cpu", enabled=False):
            gates = self.gates(x.float()).unflatten(-1, (3, 6))
        g, beta = -torch.nn.functional.softplus(gates[..., :5]), gates[..., 5].sigmoid()
        o, _ = gt.chunk_kda(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
        return gt.norm(o, None, v), (q, k, v, g, beta)


def test_compile():
    torch.manual_seed(0)
    layer, x = Layer(), torch.randn(2, 9, 12)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    found = []
    for module in (layer, compiled):
        layer.zero_grad()
        y, _ = module(x)
        y.square().sum().backward()
        found.append([y.detach(), *(p.grad.clone() for p in layer.parameters())])
    for one, other in zip(*found):
        assert one.abs().max() > 1e-3 and torch.allclose(one, other, rtol=1e-5, atol=1e-6)


def test_autocast_leaves_gates_wide():
    torch.manual_seed(0)
    layer, x = Layer(), torch.randn(2, 9, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, (q, k, v, g, beta) = layer(x)
    assert (q.dtype, v.dtype, g.dtype, beta.dtype, y.dtype) == (torch.bfloat16,) * 2 + (torch.float32,) * 2 + (torch.bfloat16,)
    outside, _ = gt.chunk_kda(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)
    assert torch.equal(gt.norm(outside, None, v), y)
    narrow, _ = gt.chunk_kda(q, k, v, g.bfloat16(), beta.bfloat16(), use_qk_l2norm_in_kernel=True)
    assert not torch.equal(narrow, outside), "rounded gates make a difference"
    y.float().square().sum().backward()
    assert layer.gates.weight.grad.abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_goes_through_the_dispatcher():
    """It has no batching rule, and must not read the memory of wrapped tensors."""
    x, _ = tensors("kda")
    both = torch.stack([x["q"], x["k"]])
    found = torch.func.vmap(lambda q: gt._ops.rule(*arguments(dict(x, q=q)))[0])(both)
    for q, o in zip(both, found):
        assert torch.equal(gt._ops.rule(*arguments(dict(x, q=q)))[0], o)


def test_threads_of_pytorch():
    x, _ = tensors("gdn2")
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(forward(*arguments(x))[0])
    torch.set_num_threads(1)
    assert torch.equal(*found)


def _in_child(queue):
    x, _ = tensors("kda")
    queue.put(forward(*arguments(x))[0].sum().item())


class Rows(torch.utils.data.Dataset):
    """Each row is made by a call of the library, in a process that was forked after such calls."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        x, _ = tensors("kda", seed=i)
        torch.set_num_threads(2)
        return forward(*arguments(x))[0]


def test_workers_of_a_data_loader():
    torch.set_num_threads(2)
    wanted = torch.stack([Rows()[i] for i in range(4)])
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=60)
    (made,) = loader
    torch.set_num_threads(1)
    assert torch.equal(made, wanted) and made.abs().max() > 0.1


def test_after_fork():
    torch.set_num_threads(2)
    x, _ = tensors("kda")
    expected = forward(*arguments(x))[0].sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(queue,))
    child.start()
    child.join(60)
    torch.set_num_threads(1)
    assert child.exitcode == 0 and queue.get(timeout=10) == expected
