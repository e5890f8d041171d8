"""gdn2.step against gdn2.forward and the float64 token loop."""

import numpy as np
import options_loop
import pytest
import token_loop

import gdn2

TOKENS = ("q", "k", "v", "g", "b", "w")


@pytest.fixture
def x():
    return {name: value for name, value in token_loop.sample("gdn2").items() if name in (*TOKENS, "h0")}


def tokens(x, begin, end):
    return {name: x[name][:, begin:end] for name in TOKENS}


def test_token_by_token(x):
    reference, _ = token_loop.forward(x)
    state, parts = x["h0"].copy(), []
    for t in range(37):
        o, same = gdn2.step(**tokens(x, t, t + 1), state=state)
        assert same is state
        parts.append(o)
    token_loop.assert_close({"o": np.concatenate(parts, axis=1), "h_final": state}, reference)


def test_several_tokens_and_another_place(x):
    before = x["h0"].copy()
    o, state = gdn2.step(**tokens(x, 0, 5), state=x["h0"], state_out=np.empty_like(x["h0"]))
    assert np.array_equal(x["h0"], before)
    again = x["h0"].copy()
    parts = [gdn2.step(**tokens(x, t, t + 1), state=again)[0] for t in range(5)]
    assert np.array_equal(np.concatenate(parts, axis=1), o) and np.array_equal(again, state)
    fresh, _ = gdn2.step(**tokens(x, 0, 5))
    token_loop.assert_close({"o": fresh}, {"o": token_loop.forward(tokens(x, 0, 5))[0]["o"]})


def test_options():
    x = options_loop.sample(raw=True, key_gates=True)
    options = {"head_map": "tiled", "decay": "softplus", "erase": "sigmoid", "write": "sigmoid", "qk_l2norm": True}
    reference = options_loop.forward(x, options)
    o, state = gdn2.step(**{name: value for name, value in x.items() if name != "h0"}, **options, state=x["h0"].copy())
    token_loop.assert_close({"o": o, "h_final": state}, reference)


def test_float64():
    x = token_loop.sample("gdn2")
    x = {name: value.astype(np.float64) for name, value in x.items() if name in (*TOKENS, "h0")}
    reference, _ = token_loop.forward(x)
    state, parts = x["h0"].copy(), []
    for t in range(37):
        parts.append(gdn2.step(**tokens(x, t, t + 1), state=state)[0])
    o = np.concatenate(parts, axis=1)
    assert o.dtype == state.dtype == np.float64 and np.abs(reference["o"]).max() > 0.1
    for got, name in ((o, "o"), (state, "h_final")):
        assert np.linalg.norm(got - reference[name]) <= 1e-13 * np.linalg.norm(reference[name])
    fresh = gdn2.step(**tokens(x, 0, 5))[1]
    assert fresh.dtype == np.float64 and np.array_equal(fresh, gdn2.forward(**tokens(x, 0, 5))[1])


def test_slots_and_reset(x):
    pool = np.random.default_rng(0).normal(size=(5, *x["h0"].shape[1:])).astype(np.float32)
    before = pool.copy()
    new = tokens(x, 0, 2)
    o, _ = gdn2.step(**new, state=pool, slots=np.array([3, -1]), reset=np.array([True, False]))
    expected, state = gdn2.step(**{name: value[:1] for name, value in new.items()})
    assert np.array_equal(o[:1], expected) and np.array_equal(pool[3:4], state) and not o[1:].any()
    assert np.array_equal(pool[[0, 1, 2, 4]], before[[0, 1, 2, 4]])
    for slots, message in (
        ([3, 3], "slot"),
        ([3, 5], "slot"),
        ([3], "slots has 1 elements; it must have one for each of 2 rows"),
    ):
        with pytest.raises(ValueError, match=message):
            gdn2.step(**new, state=pool, slots=np.array(slots))


def test_rejected_drafts(x):
    each = np.full((2, 4, *x["h0"].shape[1:]), np.nan, np.float32)
    state = x["h0"].copy()
    gdn2.step(**tokens(x, 0, 4), state=state, each=each)
    assert np.array_equal(each[:, 3], state) and np.isfinite(each).all()
    more, again = np.full((2, 6, *x["h0"].shape[1:]), np.nan, np.float32), x["h0"].copy()
    gdn2.step(**tokens(x, 0, 4), state=again, each=more)
    assert np.array_equal(more[:, :4], each) and np.isnan(more[:, 4:]).all()
    start = x["h0"].copy()
    o, state = gdn2.step(**tokens(x, 4, 6), state=start, history=each, accepted=np.array([2, 0]), state_out=np.empty_like(start))
    expected, last = gdn2.step(**tokens(x, 4, 6), state=np.stack([each[0, 1], x["h0"][1]]))
    assert np.array_equal(o, expected) and np.array_equal(state, last)
    with pytest.raises(ValueError, match=r"each has shape .*; it must be \(2, 4, 3, 5, 7\)"):
        gdn2.step(**tokens(x, 0, 4), state=state, each=each[:, :3])


def test_narrow_states(x):
    state = x["h0"].astype(np.float16)
    wide = state.astype(np.float32)
    o, same = gdn2.step(**tokens(x, 0, 1), state=state)
    expected, _ = gdn2.step(**tokens(x, 0, 1), state=wide)
    assert same is state and np.array_equal(o, expected) and np.array_equal(state, wide.astype(np.float16))


def test_snapshots(x):
    states = np.empty((2, 2, *x["h0"].shape[1:]), np.float32)
    whole, _ = gdn2.forward(**x, snapshots=states, snapshot_every=16)
    _, at_16 = gdn2.forward(**tokens(x, 0, 16), h0=x["h0"])
    assert np.array_equal(states[:, 0], at_16)
    o, _ = gdn2.forward(**tokens(x, 32, 37), h0=states[:, 1])
    assert np.array_equal(o, whole[:, 32:])


def test_snapshots_of_packed_prompts_in_float64(x):
    packed = {name: x[name][:1].astype(np.float64) for name in TOKENS}
    states = np.full((1, 2, *x["h0"].shape[1:]), np.nan)
    gdn2.forward(**packed, cu_seqlens=np.array([0, 18, 37]), snapshots=states, snapshot_every=16)
    for moment, begin in enumerate((0, 18)):
        assert np.array_equal(states[:, moment], gdn2.forward(**tokens(packed, begin, begin + 16))[1])


def test_snapshots_of_packed_prompts_are_a_pool(x):
    """Both of two prompts, of 18 and 19 tokens, go on after their first 16."""
    packed = {name: x[name][:1] for name in TOKENS}
    offsets, states = np.array([0, 18, 37]), np.full((1, 2, *x["h0"].shape[1:]), np.nan, np.float32)
    whole, h_final = gdn2.forward(**packed, h0=x["h0"], cu_seqlens=offsets, snapshots=states, snapshot_every=16)
    rest = [16, 17, 34, 35, 36]
    new, cut = {name: value[:, rest] for name, value in packed.items()}, np.array([0, 2, 5])
    o, pool = gdn2.step(**new, cu_seqlens=cut, state=states[0], slots=offsets[:2] // 16)
    assert token_loop.relative_error(o, whole[:, rest]) < 1e-6 and token_loop.relative_error(pool, h_final) < 1e-6
    with pytest.raises(ValueError, match=r"snapshots has shape \(2, 2, 3, 5, 7\); it must be \(1, 2, 3, 5, 7\)"):
        gdn2.forward(**packed, cu_seqlens=offsets, snapshots=np.empty((2, 2, 3, 5, 7), np.float32), snapshot_every=16)


def test_errors_name_the_argument(x):
    frozen = x["h0"].copy()
    frozen.flags.writeable = False
    new = tokens(x, 0, 1)
    for call, kind, message in (
        (lambda: gdn2.step(**new, state=frozen), ValueError, "state is read-only"),
        (lambda: gdn2.step(**new, state=x["h0"][:1]), ValueError, r"state has shape \(1, 3, 5, 7\); it must be \(2, 3, 5, 7\)"),
        (lambda: gdn2.step(**new, state=x["h0"].astype(np.float64)), TypeError, "from: dtype is 3"),
        (lambda: gdn2.step(**new, state=x["h0"], reset=np.zeros(2)), TypeError, "reset has element type float64"),
        (lambda: gdn2.step(**new, accepted=np.array([1, 1])), ValueError, "history"),
    ):
        with pytest.raises(kind, match=message):
            call()
