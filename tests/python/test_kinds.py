"""An object of a wrong kind in the place of a tensor is a TypeError that names the argument, in every function."""

import inspect

import numpy as np
import pytest
import token_loop

import gdn2

TOKENS = ("q", "k", "v", "g", "b", "w")
WRONG = ({"a": 1}, "text", object())
STATES = np.zeros((2, 4, 3, 5, 7), np.float32)


def sample(rule="gdn2"):
    names = ("q", "k", "v", *token_loop.RULES[rule])
    return {name: value[:, :4] for name, value in token_loop.sample(rule).items() if name in names}


def refuse(function, arguments, names, wrong, convert=lambda x: x):
    """Each of the names with each of the wrong objects, beside right ones."""
    arguments = {name: convert(value) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    function(**arguments)
    for name in names:
        for value in wrong:
            with pytest.raises(TypeError) as error:
                function(**{**arguments, name: value})
            sentence = f"{name} is of type {type(value).__name__}; it must be a"
            assert str(error.value).startswith(sentence), f"{name}: {error.value}"


def tensors_of(function, kind):
    """The arguments of a function that are annotated as tensors."""
    return [name for name, x in inspect.signature(function).parameters.items() if kind in str(x.annotation)]


def calls():
    """(function, arguments, names of its arrays) of gdn2; conv and norm have their own below."""
    x, state = sample(), np.zeros((2, 3, 5, 7), np.float32)
    numbers = dict(accepted=np.zeros(2, np.int64), slots=np.arange(2), reset=np.zeros(2, bool))
    raw = dict(decay="softplus", A_log=np.zeros(3, np.float32), dt_bias=np.zeros(3, np.float32))
    flat = {name: value[:1] for name, value in x.items()}
    packed = dict(flat, cu_seqlens=np.array([0, 1, 4]), h0=state)
    yield gdn2.forward, dict(packed, **raw), (*TOKENS, "h0", "cu_seqlens", "A_log", "dt_bias")
    yield gdn2.forward, dict(x, out=np.empty_like(x["v"]), h_out=state.copy()), ("out", "h_out")
    yield gdn2.forward, dict(x, snapshot_every=16), ("snapshots",)
    yield gdn2.backward, dict(packed, **raw, d_o=flat["v"], dh_final=state), (*TOKENS, "h0", "cu_seqlens", "A_log", "dt_bias",
                                                                           "d_o", "dh_final")  # fmt: skip
    yield gdn2.backward, dict(x, d_o=x["v"], snapshot_every=16), ("snapshots",)
    places = dict(state=state.copy(), state_out=state.copy(), each=STATES.copy(), history=STATES.copy())
    yield gdn2.step, dict(x, **places, **numbers, **raw), (*TOKENS, *places, *numbers, "A_log", "dt_bias")
    half = dict(q=x["q"], k=x["k"], v=x["v"], beta=x["g"][..., 0])
    for function in (gdn2.forward, gdn2.backward, gdn2.step):
        yield function, dict(half, d_o=x["v"]) if function is gdn2.backward else half, ("beta",)


def parts():
    x, weight, state = np.ones((2, 5, 6), np.float32), np.ones((6, 4), np.float32), np.ones((2, 6, 3), np.float32)
    bias, z = np.ones(6, np.float32), np.ones((2, 5, 6), np.float32)
    flat = dict(x=x[:1], weight=weight, bias=bias, state=state, cu_seqlens=np.array([0, 2, 5]))
    rows = dict(x=x, weight=bias, z=z)
    yield "conv", flat
    yield "norm", rows


@pytest.mark.parametrize("call", [*calls()], ids=lambda call: f"{call[0].__name__}-{call[2][0]}")
def test_numpy(call):
    function, arguments, names = call
    refuse(function, arguments, names, (*WRONG, [1, 2]))


def test_numpy_parts():
    for name, arguments in parts():
        refuse(getattr(gdn2, name), arguments, list(arguments), (*WRONG, [1, 2]))
        x = arguments["x"]
        back = dict(arguments, dy=x)
        refuse(getattr(gdn2, f"{name}_backward"), back, list(back), (*WRONG, [1, 2]))


def of_torch():
    """(function, arguments): flash-linear-attention's ten."""
    x, state = sample(), np.zeros((2, 3, 5, 7), np.float32)
    beta, one = x["g"][..., 0], {name: value[:1] for name, value in x.items()}
    common = dict(initial_state=state, cu_seqlens=np.array([0, 1, 4]))
    raw = dict(use_gate_in_kernel=True, A_log=np.zeros(3, np.float32), dt_bias=np.zeros(3, np.float32))
    qkv = {name: one[name] for name in "qkv"}
    yield "chunk_gdn2", dict(one, **common, **raw)
    yield "fused_recurrent_gdn2", dict(one, **common, **raw)
    yield "chunk_kda", dict(qkv, g=one["g"], beta=beta[:1], **common, **raw)
    yield "fused_recurrent_kda", dict(qkv, g=one["g"], beta=beta[:1], **common, **raw)
    yield "chunk_gated_delta_rule", dict(qkv, g=one["g"][..., 0], beta=beta[:1], **common, **raw)
    yield "fused_recurrent_gated_delta_rule", dict(qkv, g=one["g"][..., 0], beta=beta[:1], **common, **raw)
    yield "fused_recurrent_gated_delta_rule", dict(qkv, gk=one["g"], gv=one["w"], **common)
    yield "chunk_delta_rule", dict(qkv, beta=beta[:1], **common)
    yield "fused_recurrent_delta_rule", dict(qkv, beta=beta[:1], **common)
    yield "chunk_gla", dict(qkv, g=one["g"], **common)
    yield "fused_recurrent_gla", dict(qkv, gk=one["g"], gv=one["w"], **common)
    yield "conv", dict(parts())["conv"]
    yield "norm", dict(parts())["norm"]
    step = dict(x, state=state, state_out=state.copy(), each=STATES.copy(), history=STATES.copy())
    step |= dict(accepted=np.zeros(2, np.int64), slots=np.arange(2), reset=np.zeros(2, bool))
    yield "step", step | dict(decay="softplus", A_log=np.zeros(3, np.float32), dt_bias=np.zeros(3, np.float32))
    yield "step", dict(q=x["q"], k=x["k"], v=x["v"], beta=beta, state=state)
    yield "step", dict(one, state=state, cu_seqlens=np.array([0, 1, 4]))


@pytest.mark.parametrize("call", [*of_torch()], ids=lambda call: call[0])
def test_torch(call):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")
    import gdn2.torch

    name, arguments = call
    function = getattr(gdn2.torch, name)
    names = [key for key, value in arguments.items() if isinstance(value, np.ndarray)]
    refuse(function, arguments, names, (*WRONG, [1, 2], np.zeros(3)), torch.from_numpy)
    required = [key for key, x in inspect.signature(function).parameters.items() if x.default is x.empty]
    # A decay or a gate of Gated DeltaNet-2 that is None is at its neutral value.
    missing = [key for key in required if key not in (("b", "w") if name == "chunk_gated_delta_rule" else ("g", "b", "w"))]
    made = {key: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for key, x in arguments.items()}
    for key in missing:
        with pytest.raises(TypeError, match=f"{key} is of type NoneType; it must be a torch.Tensor"):
            function(**{**made, key: None})


def test_every_tensor_of_torch_is_tried():
    pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")
    import gdn2.torch

    tried = {}
    for name, arguments in of_torch():
        tried.setdefault(name, set()).update(key for key, value in arguments.items() if isinstance(value, np.ndarray))
    # These have no effect, or are refused whatever they are.
    idle = {"cu_seqlens_cpu", "chunk_indices"}
    for name in gdn2.torch.__all__:
        assert set(tensors_of(getattr(gdn2.torch, name), "Tensor")) - tried[name] <= idle, name


def test_lists_as_offsets():
    """What flash-linear-attention does not take either; it was an AttributeError."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")
    import gdn2.torch

    x = [torch.from_numpy(sample()[name][:1]) for name in ("q", "k", "v")]
    for offsets in ([0, 4], np.array([0, 4])):
        with pytest.raises(TypeError, match=f"cu_seqlens is of type {type(offsets).__name__}; it must be a torch.Tensor or None"):
            gdn2.torch.chunk_gla(*x, None, cu_seqlens=offsets)
    gdn2.torch.chunk_gla(*x, None, cu_seqlens=torch.tensor([0, 4]))


@pytest.mark.parametrize("rule", token_loop.RULES)
def test_jax(rule):
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    import jax_support as support

    x, state = sample(rule), np.zeros((2, 3, 5, 7), np.float32)
    whole = dict(x, initial_state=state, segment_ids=np.zeros((2, 4), int), output_final_state=True)
    wrong = (*WRONG, {1, 2})
    refuse(support.CHUNKS[rule], whole, [*x, "initial_state", "segment_ids"], wrong, jnp.asarray)
    packed = {name: value[:1] for name, value in x.items()} | dict(cu_seqlens=np.array([0, 1, 4]))
    refuse(support.CHUNKS[rule], packed, ["cu_seqlens"], wrong, jnp.asarray)
    token = {name: value[:, 0] for name, value in x.items()}
    refuse(support.STEPS[rule], dict(token, state=state, reset=np.zeros(2, bool)), [*x, "state", "reset"], wrong, jnp.asarray)
