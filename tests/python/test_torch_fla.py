"""gdn2.torch against flash-linear-attention's naive functions: its own tests' measure, a hundred times closer."""

import inspect

import fla_package
import pytest
import torch
import torch.nn.functional as F

import gdn2.torch as gt

KDA = fla_package.naive("kda/naive.py")
GDN2 = fla_package.naive("gdn2/naive.py")
GDN = fla_package.naive("gated_delta_rule/naive.py")
DELTA = fla_package.naive("delta_rule/naive.py")
GLA = fla_package.naive("gla/naive.py")
KDA_GATE = fla_package.function("kda/gate.py", "naive_kda_gate")
BOUNDED_GATE = fla_package.function("kda/gate.py", "naive_kda_lowerbound_gate")
GDN_GATE = fla_package.function("gated_delta_rule/gate.py", "naive_gdn_gate")

# A hundredth of what flash-linear-attention's tests allow.
TOLERANCES = {"o": 5e-5, "ht": 5e-5, "q": 8e-5, "k": 8e-5, "v": 7e-5, "initial_state": 8e-5, "A_log": 1e-5, "dt_bias": 1e-5}
GATES = 1.5e-4
# B, T, H, D, scale, divisor of the logits, share of tokens that do not fade.
SHAPES = [(1, 63, 1, 64, 1, 1, 0), (2, 70, 3, 60, 1, 1, 0.5), (1, 130, 2, 100, 0.1, 10, 0)]


def sample(B, T, H, D, divisor, mask, vector=True, HV=None, V=None, seed=42):
    """Inputs as those tests draw them, with more value heads and another width where asked for."""
    torch.manual_seed(seed)
    HV, V = HV or H, V or D
    g = F.logsigmoid(torch.randn(B, T, HV, D) if vector else torch.randn(B, T, HV)) / divisor
    x = {
        "q": F.normalize(torch.rand(B, T, H, D), dim=-1),
        "k": F.normalize(torch.rand(B, T, H, D), dim=-1),
        "v": torch.rand(B, T, HV, V),
        "g": g * (torch.rand_like(g) >= mask),
        "beta": torch.randn(B, T, HV).sigmoid(),
        "b": torch.rand(B, T, HV, D),
        "w": torch.rand(B, T, HV, V),
        "initial_state": torch.randn(B, HV, D, V),
    }
    return {name: value.requires_grad_() for name, value in x.items()}


def results(function, x, names):
    """{o, ht and the gradients of the named inputs} for random gradients of both outputs."""
    o, ht = function({name: x[name] for name in names})
    torch.manual_seed(7)
    loss = (o * torch.randn_like(o)).sum() + (ht * torch.randn_like(ht)).sum()
    found = torch.autograd.grad(loss, [x[name] for name in names])
    return {"o": o, "ht": ht} | dict(zip(names, found))


def assert_close(ours, theirs):
    """The measure of those tests: the error's root mean square over the reference's."""
    assert set(ours) == set(theirs)
    for name, reference in theirs.items():
        size = reference.detach().double().square().mean().sqrt()
        assert size > 1e-6, f"{name}: the reference is nearly zero"
        ratio = (ours[name] - reference).detach().double().square().mean().sqrt() / size
        assert ratio < TOLERANCES.get(name, GATES), f"{name}: {ratio:.3g}"


RULES = {
    "gdn2": (("q", "k", "v", "g", "b", "w"), GDN2.naive_recurrent_gdn2, gt.chunk_gdn2, gt.fused_recurrent_gdn2),
    "kda": (("q", "k", "v", "g", "beta"), KDA.naive_recurrent_kda, gt.chunk_kda, gt.fused_recurrent_kda),
    "gdn": (
        ("q", "k", "v", "g", "beta"),
        GDN.naive_recurrent_gated_delta_rule,
        gt.chunk_gated_delta_rule,
        gt.fused_recurrent_gated_delta_rule,
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", RULES)
def test_rules(rule, shape):
    B, T, H, D, scale, divisor, mask = shape
    names, naive, *functions = RULES[rule]
    x = sample(B, T, H, D, divisor, mask, vector=rule != "gdn")
    names = (*names, "initial_state")
    options = {"scale": scale, "output_final_state": True}
    reference = results(lambda y: naive(**y, **options), x, names)
    for function in functions:
        assert_close(results(lambda y: function(**y, **options), x, names), reference)


def test_the_comparison_sees_a_small_fault():
    x = sample(1, 63, 1, 64, 1, 0)
    names, naive, ours, _ = RULES["kda"]
    reference = results(lambda y: naive(**y, output_final_state=True), x, names)
    with pytest.raises(AssertionError, match="o: "):
        assert_close(results(lambda y: ours(**dict(y, g=1.001 * y["g"]), output_final_state=True), x, names), reference)


def test_grouped_value_heads():
    x = sample(2, 40, 2, 24, 1, 0, HV=6, V=20)
    names, naive, *functions = RULES["kda"]
    reference = results(lambda y: naive(**y, output_final_state=True), x, names)
    for function in functions:
        assert_close(results(lambda y: function(**y, output_final_state=True), x, names), reference)


def test_delta_rule():
    x = sample(2, 40, 3, 60, 1, 0)
    names = ("q", "k", "v", "beta", "initial_state")

    def naive(y):
        heads_first = [y[name].transpose(1, 2) for name in names[:4]]
        o, ht = DELTA.delta_rule_recurrence(*heads_first, initial_state=y["initial_state"])
        return o.transpose(1, 2), ht

    reference = results(naive, x, names)
    for function in (gt.chunk_delta_rule, gt.fused_recurrent_delta_rule):
        assert_close(results(lambda y: function(**y, output_final_state=True), x, names), reference)


def test_gla():
    x = sample(2, 40, 3, 60, 1, 0)
    names = ("q", "k", "v", "g", "initial_state")
    gates = {"gk" if name == "g" else name: name for name in names}

    def renamed(function, **options):
        return lambda y: function(**{new: y[old] for new, old in gates.items()}, output_final_state=True, **options)

    reference = results(renamed(GLA.naive_recurrent_gla), x, names)
    assert_close(results(renamed(gt.fused_recurrent_gla), x, names), reference)
    assert_close(results(lambda y: gt.chunk_gla(**y, output_final_state=True), x, names), reference)
    o, _ = gt.fused_recurrent_gla(x["q"], x["k"], x["v"], x["g"], reverse=True)
    flipped, _ = gt.chunk_gla(*(x[name].flip(1) for name in ("q", "k", "v", "g")))
    assert torch.equal(o, flipped.flip(1))


def value_decays(y, reverse=False):
    """A token loop in float64 with decays of every kind; there is no naive function with those of value channels."""
    y = {name: value.double() for name, value in y.items()}
    q, k, v = y["q"], y["k"], y["v"]
    groups = v.shape[2] // q.shape[2]
    q, k = (x.repeat_interleave(groups, 2) for x in (q, k))
    S, outputs = y["initial_state"], []
    for t in reversed(range(v.shape[1])) if reverse else range(v.shape[1]):
        for name, axes in (("g", (None, None)), ("gk", (slice(None), None)), ("gv", (None, slice(None)))):
            if name in y:
                S = S * y[name][:, t].exp()[(..., *axes)]
        z = v[:, t]
        if "beta" in y:
            z = y["beta"][:, t, :, None] * (z - torch.einsum("bhkv,bhk->bhv", S, k[:, t]))
        S = S + k[:, t, ..., None] * z[:, :, None]
        outputs.append(torch.einsum("bhkv,bhk->bhv", S, q[:, t]) * q.shape[3] ** -0.5)
    return torch.stack(outputs[::-1] if reverse else outputs, 1).float(), S.float()


@pytest.mark.parametrize("decays", [("gv",), ("g", "gv"), ("gk", "gv"), ("g", "gk", "gv"), ("g", "gk")])
@pytest.mark.parametrize("v_first", [False, True])
def test_value_decay_of_the_delta_rule(decays, v_first):
    x = sample(2, 40, 2, 24, 1, 0, vector=False, HV=4, V=11)
    x |= {name: F.logsigmoid(torch.randn(2, 40, 4, D)).requires_grad_() for name, D in (("gk", 24), ("gv", 11))}
    names = ("q", "k", "v", *decays, "beta", "initial_state")

    def ours(y):
        state = y.pop("initial_state")
        o, h = gt.fused_recurrent_gated_delta_rule(
            **y, initial_state=state.mT if v_first else state, output_final_state=True, state_v_first=v_first
        )
        return o, h.mT.contiguous() if v_first else h

    assert_close(results(ours, x, names), results(value_decays, x, names))


@pytest.mark.parametrize("reverse", [False, True])
def test_value_decay_of_gla(reverse):
    x = sample(2, 33, 3, 20, 1, 0, V=9)
    x |= {name: F.logsigmoid(torch.randn(2, 33, 3, D)).requires_grad_() for name, D in (("gk", 20), ("gv", 9))}
    for names in (("q", "k", "v", "gk", "gv", "initial_state"), ("q", "k", "v", "gv", "initial_state")):
        found = results(lambda y: gt.fused_recurrent_gla(**y, output_final_state=True, reverse=reverse), x, names)
        assert_close(found, results(lambda y: value_decays(y, reverse), x, names))


def test_value_decay_of_packed_sequences():
    """The same as each sequence alone."""
    x = {name: value.detach() for name, value in sample(1, 50, 2, 16, 1, 0, vector=False, V=7).items()}
    gv, h0 = F.logsigmoid(torch.randn(1, 50, 2, 7)), torch.randn(2, 2, 16, 7)
    gates = {name: x[name] for name in ("q", "k", "v", "g", "beta")} | {"gv": gv}
    cu = torch.tensor([0, 17, 50])
    o, h = gt.fused_recurrent_gated_delta_rule(**gates, initial_state=h0, output_final_state=True, cu_seqlens=cu)
    for n, (start, end) in enumerate(((0, 17), (17, 50))):
        part = {name: value[:, start:end] for name, value in gates.items()}
        alone, last = gt.fused_recurrent_gated_delta_rule(**part, initial_state=h0[n : n + 1], output_final_state=True)
        assert torch.equal(o[:, start:end], alone) and torch.equal(h[n : n + 1], last)


@pytest.mark.parametrize("cu", [[0, 15], [0, 20, 20, 57, 100]])
def test_variable_length(cu):
    H, D = 4, 60
    x = sample(1, cu[-1] + 3, H, D, 1, 0)
    x["initial_state"] = torch.randn(len(cu) - 1, H, D, D, requires_grad=True)
    names, naive, *functions = RULES["kda"]
    names = (*names, "initial_state")

    def pieces(y):
        found = []
        for n, (begin, end) in enumerate(zip(cu, cu[1:])):
            part = {name: y[name][n : n + 1] if name == "initial_state" else y[name][:, begin:end] for name in names}
            if end > begin:
                found.append(naive(**part, output_final_state=True))
            else:
                found.append((part["v"], part["initial_state"]))
        beyond = torch.zeros(1, 3, H, D)
        return torch.cat([o for o, _ in found] + [beyond], dim=1), torch.cat([h for _, h in found])

    reference = results(pieces, x, names)
    for kind in (torch.int32, torch.int64):
        options = {"output_final_state": True, "cu_seqlens": torch.tensor(cu, dtype=kind)}
        for function in functions:
            assert_close(results(lambda y: function(**y, **options), x, names), reference)


@pytest.mark.parametrize("bound", [None, -5.0])
@pytest.mark.parametrize("shape_of_A", [(3,), (1, 1, 3, 1)])
def test_gate_in_kernel(bound, shape_of_A):
    x = sample(2, 40, 3, 60, 1, 0)
    x["g"] = torch.randn(2, 40, 3, 60, requires_grad=True)
    x["A_log"] = torch.rand(shape_of_A).mul(2).requires_grad_()
    x["dt_bias"] = torch.randn(3 * 60, requires_grad=True)
    names = ("q", "k", "v", "g", "beta", "A_log", "dt_bias")

    def naive(y):
        y = dict(y)
        parameters = (y.pop("g"), y.pop("A_log"), y.pop("dt_bias"))
        g = KDA_GATE(*parameters) if bound is None else BOUNDED_GATE(*parameters, lower_bound=bound)
        return KDA.naive_recurrent_kda(**y, g=g, output_final_state=True)

    reference = results(naive, x, names)
    options = {"output_final_state": True, "use_gate_in_kernel": True, "lower_bound": bound}
    assert_close(results(lambda y: gt.chunk_kda(**y, **options, safe_gate=bound is not None), x, names), reference)
    assert_close(results(lambda y: gt.fused_recurrent_kda(**y, **options), x, names), reference)
    if bound is not None:
        without = {name: x[name] for name in names[:5]}
        expected = KDA.naive_recurrent_kda(**dict(without, g=BOUNDED_GATE(x["g"], None, None, bound)))[0]
        assert_close({"o": gt.chunk_kda(**without, use_gate_in_kernel=True, lower_bound=bound)[0]}, {"o": expected})


def test_gate_and_beta_in_kernel_of_gated_delta_net():
    x = sample(2, 40, 3, 60, 1, 0, vector=False)
    x |= {name: torch.randn(3, requires_grad=True) for name in ("A_log", "dt_bias")}
    x["g"], x["beta"] = (torch.randn(2, 40, 3, requires_grad=True) for _ in range(2))
    names = ("q", "k", "v", "g", "beta", "A_log", "dt_bias")
    for factor in (1, 2):

        def naive(y):
            g = GDN_GATE(y["g"], y["A_log"], y["dt_bias"])
            tensors = {name: y[name] for name in ("q", "k", "v")}
            beta = factor * y["beta"].sigmoid()
            return GDN.naive_recurrent_gated_delta_rule(**tensors, beta=beta, g=g, output_final_state=True)

        reference = results(naive, x, names)
        options = {"output_final_state": True, "use_gate_in_kernel": True, "use_beta_sigmoid_in_kernel": True}
        for function in (gt.chunk_gated_delta_rule, gt.fused_recurrent_gated_delta_rule):
            found = results(lambda y: function(**y, **options, allow_neg_eigval=factor == 2), x, names)
            assert_close(found, reference)


def test_norm_in_kernel():
    x = sample(2, 40, 3, 60, 1, 0)
    names, naive, *functions = RULES["gdn2"]
    x["q"], x["k"] = (torch.randn(2, 40, 3, 60, requires_grad=True) for _ in range(2))

    def normed(y):
        q, k = (y[name] * torch.rsqrt(y[name].square().sum(-1, keepdim=True) + 1e-6) for name in ("q", "k"))
        return naive(**dict(y, q=q, k=k), output_final_state=True)

    reference = results(normed, x, names)
    for function in functions:
        assert_close(results(lambda y: function(**y, output_final_state=True, use_qk_l2norm_in_kernel=True), x, names), reference)


@pytest.mark.parametrize("name", fla_package.KERNELS)
def test_signatures(name):
    """The same parameters at the same places with the same defaults; what it takes out of **kwargs follows, by keyword alone."""
    ours = inspect.signature(getattr(gt, name)).parameters.values()
    positional = [parameter for parameter in ours if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    assert not any(parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) for parameter in ours)
    theirs = fla_package.signature(name)
    assert [parameter.name for parameter in positional] == [parameter for parameter, _ in theirs]
    for parameter, (_, default) in zip(positional, theirs):
        if default is not None:
            assert repr(parameter.default) == default, parameter.name
