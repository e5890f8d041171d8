"""Decode in PyTorch: the bits of the NumPy function, and those of itself under torch.compile."""

import numpy as np
import pytest
import token_loop

torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")

import gdn2  # noqa: E402
import gdn2.torch as gt  # noqa: E402

torch.set_num_threads(1)
TOKENS = ("q", "k", "v", "g", "b", "w")
COMPILED = torch.compile(gt.step, fullgraph=True, backend="aot_eager")
NARROW = {"float32": torch.float32, "float16": torch.float16}


@pytest.fixture
def x():
    return {name: value for name, value in token_loop.sample("gdn2").items() if name in (*TOKENS, "h0")}


def tokens(x, begin, end):
    return {name: x[name][:, begin:end] for name in TOKENS}


def both(arguments, changed, torch_step=gt.step):
    """The call by NumPy and by PyTorch, on arrays of their own: the same outputs, and the same in the arrays that it changes."""
    copies = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    made = {name: torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    versions = {name: value._version for name, value in made.items() if isinstance(value, torch.Tensor)}
    wanted, _ = gdn2.step(**copies)
    o = torch_step(**made)
    assert np.array_equal(o.numpy(), wanted) and np.abs(wanted).max() > 0.1
    for name in versions:
        assert np.array_equal(made[name].numpy(), copies[name], equal_nan=True), name
        assert np.array_equal(copies[name], arguments[name], equal_nan=True) == (name not in changed), name
        # A compiler takes it for changed whatever the operator may change.
        assert (made[name]._version > versions[name]) == (name in changed) or torch_step is COMPILED, name
    return made


def test_against_whole_sequences(x):
    x = {name: torch.from_numpy(value) for name, value in token_loop.sample("kda").items() if name in ("q", "k", "v", "g", "beta")}
    state = torch.randn(2, 3, 5, 7)
    o, last = gt.chunk_kda(**x, initial_state=state, output_final_state=True)
    version, parts = state._version, []
    for t in range(37):
        parts.append(gt.step(**{name: value[:, t : t + 1] for name, value in x.items()}, state=state))
    assert torch.allclose(torch.cat(parts, dim=1), o, rtol=0, atol=2e-6) and torch.allclose(state, last, rtol=0, atol=2e-6)
    assert o.abs().max() > 0.1 and state._version >= version + 37
    with pytest.raises(RuntimeError, match="step has no gradient"):
        gt.step(**dict(x, q=x["q"].requires_grad_()), state=state)


@pytest.mark.parametrize("rule", token_loop.RULES)
def test_float64(rule):
    """Against the float64 token loop: in pieces, the state in place and from one place to another; far beyond float32."""
    sample = token_loop.sample(rule)
    x = {name: torch.from_numpy(sample[name]).double() for name in ("q", "k", "v", *token_loop.RULES[rule])}
    state = torch.from_numpy(sample["h0"]).double()
    start, parts = state.clone(), []
    for a, b in ((0, 1), (1, 2), (2, 30)):
        parts.append(gt.step(**{name: value[:, a:b] for name, value in x.items()}, state=state))
    last, each = torch.zeros_like(state), torch.zeros(2, 7, 3, 5, 7, dtype=torch.float64)
    parts.append(gt.step(**{name: value[:, 30:] for name, value in x.items()}, state=state, state_out=last, each=each))
    o, wanted = torch.cat(parts, dim=1), token_loop.forward(sample, rule)[0]
    assert o.dtype == torch.float64 and torch.equal(each[:, -1], last) and not torch.equal(state, start)
    for made, name in ((o, "o"), (last, "h_final")):
        error = np.abs(made.numpy() - wanted[name]).max()
        rounded = np.abs(made.float().double().numpy() - wanted[name]).max()
        assert error < 1e-13 < 1e-9 < rounded and np.abs(wanted[name]).max() > 0.1
    with pytest.raises(TypeError, match="from: dtype is 0; it must be GDN2_F64"):
        gt.step(**x, state=start.float())
    with pytest.raises(TypeError, match="v: dtype is 0; it must be GDN2_F64"):
        gt.step(**dict(x, v=x["v"].float()), state=start)


def test_slots_of_a_pool_of_any_strides(x):
    x = {name: torch.from_numpy(x[name]) for name in TOKENS}
    pool = torch.randn(5, 7, 3, 5).transpose(1, 3).transpose(1, 2)
    before = pool.clone()
    one = {name: value[:, :1] for name, value in x.items()}
    o = gt.step(**one, state=pool, slots=torch.tensor([4, -1]))
    state = before[4:5].clone()
    expected = gt.step(**{name: value[:1] for name, value in one.items()}, state=state)
    assert torch.equal(o[:1], expected) and torch.equal(pool[4], state[0]) and torch.equal(pool[:4], before[:4])


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("step", [gt.step, COMPILED])
def test_drafts(x, kind, step):
    """Four drafts, of which two and none hold; the state before them is still there."""
    state, each = x["h0"].astype(kind), np.full((2, 5, 3, 5, 7), np.nan, kind)
    first = dict(tokens(x, 0, 4), state=state, state_out=np.zeros_like(state), each=each)
    made = both(first, {"state_out", "each"}, step)
    assert made["state_out"].dtype == NARROW[kind] and torch.equal(made["each"][:, 3], made["state_out"])
    assert made["each"][:, 4].isnan().all()
    held = dict(history=made["each"].numpy(), accepted=np.array([2, 0]))
    both(dict(tokens(x, 4, 6), state=state, **held), {"state"}, step)


@pytest.mark.parametrize("step", [gt.step, COMPILED])
def test_drafts_in_place(x, step):
    """The next drafts take the place of the last, from which they start."""
    states = [torch.from_numpy(x["h0"]).clone() for _ in range(2)]
    drafts = torch.zeros(2, 4, 3, 5, 7)
    one = lambda begin, end: {name: torch.from_numpy(x[name][:, begin:end]) for name in TOKENS}  # noqa: E731
    step(**one(0, 4), state=states[0], each=drafts)
    o = step(**one(4, 7), state=states[0], each=drafts, history=drafts, accepted=torch.tensor([3, 1], dtype=torch.int32))
    expected = [gt.step(**{name: value[n : n + 1] for name, value in one(0, held).items()}, state=states[1][n : n + 1])
                for n, held in enumerate((3, 1))]  # fmt: skip
    assert all(value.abs().max() > 0.1 for value in expected)
    assert torch.equal(o, gt.step(**one(4, 7), state=states[1])) and torch.equal(drafts[:, 2], states[1])


def test_drafts_of_a_pool(x):
    pool, each = np.random.default_rng(1).normal(size=(4, 3, 5, 7)).astype(np.float32), np.zeros((4, 2, 3, 5, 7), np.float32)
    slots, reset = np.array([3, 1], np.int32), np.array([False, True])
    made = both(dict(tokens(x, 0, 2), state=pool, slots=slots, reset=reset, each=each, drafts_by_slot=True), {"state", "each"})
    assert not made["each"][[0, 2]].any() and torch.equal(made["each"][1, 1], made["state"][1])
    fresh = gdn2.step(**{name: value[1:] for name, value in tokens(x, 0, 2).items()})[1]
    assert np.array_equal(made["state"][1].numpy(), fresh[0])
    held = dict(history=made["each"].numpy(), accepted=np.array([1, 2]), drafts_by_slot=True)
    both(dict(tokens(x, 2, 3), state=pool, slots=slots, **held), {"state"})


def test_drafts_of_packed_rows(x):
    one, cut = {name: x[name][:1, :6] for name in TOKENS}, np.array([0, 1, 1, 5])
    state, each = np.random.default_rng(2).normal(size=(3, 3, 5, 7)).astype(np.float32), np.full((3, 4, 3, 5, 7), np.nan, np.float32)
    made = both(dict(one, cu_seqlens=cut, state=state, each=each), {"state", "each"})
    written = made["each"].isfinite().all(-1).all(-1).all(-1).sum(1)
    assert written.tolist() == [1, 0, 4]


def test_errors_name_the_argument(x):
    t = {name: torch.from_numpy(value) for name, value in tokens(x, 0, 2).items()}
    state, each = torch.zeros(2, 3, 5, 7), torch.zeros(2, 2, 3, 5, 7)
    for arguments, kind, message in (
        (dict(state=state[:1]), ValueError, r"state has shape \(1, 3, 5, 7\); it must be \(2, 3, 5, 7\)"),
        (dict(state_out=state[:1]), ValueError, r"state_out has shape \(1, 3, 5, 7\); it must be \(2, 3, 5, 7\)"),
        (dict(each=each[:, :1]), ValueError, r"each has shape \(2, 1, 3, 5, 7\); it must be \(2, 2, 3, 5, 7\), or longer"),
        (dict(each=each[0]), ValueError, r"each has shape \(2, 3, 5, 7\); it must be \[N, T, HV, K, V\]"),
        (dict(each=torch.zeros(1).expand(each.shape)), ValueError, r"each has strides \(0, 0, 0, 0, 0\); they must not all be 0"),
        (dict(history=each[:, :, :, :4]), ValueError, "history has shape"),
        (dict(history=each, accepted=torch.tensor([1])), ValueError, "accepted has 1 elements; it must have one for each of 2 rows"),
        (dict(history=each, accepted=torch.tensor([1, 3])), ValueError, r"accepted\[1\] is 3; it must be from 0 to history_length, 2"),
        (dict(history=each, accepted=torch.tensor([1.0, 1.0])), TypeError, "accepted has element type torch.float32"),
        (dict(reset=torch.zeros(2)), TypeError, "reset has element type torch.float32; it must be torch.bool or uint8"),
        (dict(reset=torch.zeros(1, 2, dtype=torch.bool)), ValueError, r"reset has shape \(1, 2\); it must have one axis"),
    ):
        with pytest.raises(kind, match=message):
            gt.step(**t, **{"state": state, **arguments})
    assert not state.any() and not each.any()
    with pytest.raises(RuntimeError, match="step has no gradient"):
        gt.step(**t, state=state, each=each.requires_grad_())
