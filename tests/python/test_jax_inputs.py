"""What gdn2.jax takes and what it refuses: documents in a row, raw gates, guards, errors."""

import inspect
import re

import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_support as support  # noqa: E402
import numpy as np  # noqa: E402
import token_loop  # noqa: E402

import gdn2.jax  # noqa: E402


def pieces(x, at):
    """The tokens of a row from one boundary to the next, without the state."""
    tokens = [name for name in x if name != "h0"]
    return [{name: x[name][:, a:b] for name in tokens} for a, b in zip(at, at[1:])]


@pytest.mark.parametrize("rule", ["gdn2", "deltanet"])
def test_segments(rule):
    """The state starts anew where the number changes; the initial state is for the first document."""
    x, cotangents = support.sample(rule)
    ids = jnp.asarray([[5] * 7 + [2] * 1 + [5] * 11, [1] * 19])

    def by_document(x):
        first = [support.chunk(part | dict(h0=x["h0"][:1] * (i == 0)), rule)
                 for i, part in enumerate(pieces({name: value[:1] for name, value in x.items()}, (0, 7, 8, 19)))]
        other = support.chunk({name: value[1:] for name, value in x.items()}, rule)
        o = jnp.concatenate([jnp.concatenate([part[0] for part in first], 1), other[0]])
        return o, jnp.concatenate([first[-1][1], other[1]])

    o, h_final = jax.jit(lambda x, ids: support.chunk(x, rule, segment_ids=ids))(x, ids)
    token_loop.assert_close(dict(o=o, h_final=h_final), dict(zip(("o", "h_final"), by_document(x))))
    made = support.gradients(x, cotangents, rule, segment_ids=ids)
    wanted = jax.grad(lambda x: support.inner(by_document(x), cotangents))(x)
    token_loop.assert_close(made, wanted)
    assert all(np.all(np.isfinite(value)) for value in made.values())


def test_segments_of_all_rows_and_of_the_state_before():
    x, _ = support.sample()
    ids = jnp.asarray([4] * 9 + [3] * 10)
    o, h_final = support.chunk(x, segment_ids=ids)
    np.testing.assert_array_equal(o, support.chunk(x, segment_ids=jnp.stack([ids, ids]))[0])
    same, _ = support.chunk(x, segment_ids=ids, initial_state_segment_id=4)
    np.testing.assert_array_equal(same, o)
    mixed, _ = support.chunk(x, segment_ids=ids, initial_state_segment_id=jnp.asarray([4, 8]))
    np.testing.assert_array_equal(mixed[0], o[0])
    fresh, _ = support.chunk(x | dict(h0=0 * x["h0"]), segment_ids=ids)
    np.testing.assert_allclose(mixed[1], fresh[1], rtol=1e-6, atol=1e-6)


def test_packed_sequences():
    """Traced offsets; every sequence with its own states, an empty one included; what is behind the last offset gives 0."""
    x, _ = support.sample(B=1)
    states, last = support.sample(B=3, T=1, seed=9)
    x["h0"] = states["h0"]
    cotangents = support.sample(B=1, seed=8)[1][0], last[1]
    offsets = jnp.asarray([0, 6, 6, 17])

    def apart(x):
        parts = [support.chunk(part | dict(h0=x["h0"][i : i + 1])) for i, part in enumerate(pieces(x, (0, 6, 6, 17)))]
        o = jnp.concatenate([*(part[0] for part in parts), jnp.zeros((1, 2, 3, 7))], 1)
        return o, jnp.concatenate([part[1] for part in parts])

    packed = jax.jit(lambda x, offsets: support.chunk(x, cu_seqlens=offsets))
    token_loop.assert_close(dict(zip(("o", "h_final"), packed(x, offsets))), dict(zip(("o", "h_final"), apart(x))))
    assert not np.any(packed(x, offsets)[0][:, 17:])
    made = jax.jit(lambda x, c: support.gradients(x, cotangents, cu_seqlens=c))(x, offsets)
    token_loop.assert_close(made, jax.grad(lambda x: support.inner(apart(x), cotangents))(x))
    assert not np.any(made["k"][:, 17:])
    with pytest.raises(Exception, match=re.escape("cu_seqlens[2] is 3")):
        jax.block_until_ready(packed(x, jnp.asarray([0, 6, 3, 17])))


def test_raw_gates():
    x, _ = support.sample()
    raw = {name: 2 * x[name] - 1 for name in ("g", "b", "w")}
    made = support.chunk(x | raw, fuse_prologue=True, qk_l2norm=True)
    gates = {name: jax.nn.sigmoid(raw[name]) for name in "bw"} | dict(g=-jnp.exp(raw["g"]))
    np.testing.assert_array_equal(made[0], support.chunk(x | gates, qk_l2norm=True)[0])


def test_guards():
    x, _ = support.sample()
    wild = x | dict(g=x["g"] + 0.1, b=x["b"] - 0.5)
    tame = x | dict(g=jnp.minimum(wild["g"], -1e-6), b=jnp.maximum(wild["b"], 0))
    o, h_final = support.chunk(wild, stability_guard=True, stability_tau=2.0, is_inference=True)
    wanted = support.chunk(tame)
    np.testing.assert_array_equal(o, wanted[0])
    norms = np.linalg.norm(wanted[1], axis=(-2, -1))
    assert np.any(norms > 2) and np.any(np.linalg.norm(h_final, axis=(-2, -1)) > 1)
    np.testing.assert_allclose(np.linalg.norm(h_final, axis=(-2, -1)), np.minimum(norms, 2), rtol=1e-5)


def test_forward_only():
    x, cotangents = support.sample()
    np.testing.assert_array_equal(support.chunk(x, is_inference=True)[0], support.chunk(x)[0])
    with pytest.raises(ValueError, match="is_inference"):
        support.gradients(x, cotangents, is_inference=True)


def test_step_options():
    x, _ = support.sample()
    token = [x[name][:, 0] for name in support.names("gdn2")]
    o, state = gdn2.jax.gdn2_decode_step(*token, x["h0"])
    timed = gdn2.jax.gdn2_decode_step(*(t[:, None] for t in token), x["h0"])
    np.testing.assert_array_equal(timed[0][:, 0], o)
    np.testing.assert_array_equal(timed[1], state)
    half = gdn2.jax.gdn2_decode_step(*token, x["h0"], state_dtype="bfloat16")[1]
    np.testing.assert_array_equal(half, state.astype(jnp.bfloat16))
    reset = gdn2.jax.gdn2_decode_step(*token, x["h0"], reset=jnp.asarray([False, True]))
    fresh = gdn2.jax.gdn2_decode_step(*token, jnp.zeros_like(x["h0"]))
    for made, kept, new in zip(reset, (o, state), fresh):
        np.testing.assert_array_equal(made[0], kept[0])
        np.testing.assert_array_equal(made[1], new[1])
    capped = gdn2.jax.gdn2_decode_step(*token, x["h0"], stability_guard=True, stability_tau=1.5)[1]
    np.testing.assert_allclose(np.linalg.norm(capped, axis=(-2, -1)), 1.5, rtol=1e-5)


CALLS = {
    "q has shape": dict(q=jnp.ones((2, 19, 5))),
    "k has shape": dict(k=jnp.ones((2, 19, 3, 6))),
    "its batch and time": dict(v=jnp.ones((2, 18, 3, 7))),
    "multiple of the 3 heads": dict(v=jnp.ones((2, 19, 4, 7))),
    "g has shape": dict(g=jnp.ones((2, 19, 2))),
    "b has shape": dict(b=jnp.ones((2, 19, 3, 7))),
    "w has shape": dict(w=jnp.ones((2, 19, 3, 5))),
    "initial_state has shape": dict(h0=jnp.ones((2, 3, 7, 5))),
}


@pytest.mark.parametrize("sentence", CALLS)
def test_shapes_that_do_not_fit(sentence):
    x, _ = support.sample()
    with pytest.raises(ValueError, match=sentence):
        support.chunk(x | CALLS[sentence])


OPTIONS = {
    "precision": dict(precision="fp8"),
    "chunk_size": dict(chunk_size=0),
    "prefill_block_size": dict(prefill_block_size=-1),
    "stability_tau": dict(stability_tau=0.0),
    "needs qk_l2norm": dict(fuse_prologue=True),
    "needs segment_ids": dict(initial_state_segment_id=1),
    "cu_seqlens and segment_ids": dict(cu_seqlens=jnp.asarray([0, 1]), segment_ids=jnp.zeros(19, int)),
    "it must be 1": dict(cu_seqlens=jnp.asarray([0, 1])),
    "cu_seqlens has shape": dict(cu_seqlens=jnp.zeros((2, 2), int)),
    "segment_ids has shape": dict(segment_ids=jnp.zeros(18, int)),
}


@pytest.mark.parametrize("sentence", OPTIONS)
def test_options_that_do_not_fit(sentence):
    with pytest.raises(ValueError, match=sentence):
        support.chunk(support.sample()[0], **OPTIONS[sentence])


def test_types_that_do_not_fit():
    x, _ = support.sample()
    for name, wrong in (("q", jnp.int32), ("g", jnp.int8)):
        with pytest.raises(TypeError, match=f"{name} has dtype"):
            support.chunk(x | {name: x[name].astype(wrong)})
    with pytest.raises(TypeError, match="segment_ids has dtype"):
        support.chunk(x, segment_ids=jnp.zeros(19))
    with pytest.raises(TypeError, match="truncated"):
        support.chunk(x, truncated=True)


def test_sizes_beyond_the_library():
    x, _ = support.sample(B=1, T=2, H=1, K=300)
    with pytest.raises(Exception, match="K is 300"):
        jax.block_until_ready(support.chunk(x))


def test_names_and_signatures():
    """What callers of deltanet-tpu write."""
    common = ["segment_ids", "cu_seqlens", "initial_state", "output_final_state", "chunk_size", "precision", "scale", "qk_l2norm",
              "fallback_scan", "is_inference", "recompute_states"]  # fmt: skip
    for rule, function in support.CHUNKS.items():
        parameters = list(inspect.signature(function).parameters)
        assert parameters[: len(support.names(rule))] == list(support.names(rule))
        assert set(common) <= set(parameters)
    for rule, function in support.STEPS.items():
        parameters = list(inspect.signature(function).parameters)
        assert parameters[: len(support.names(rule)) + 1] == [*support.names(rule), "state"]
        assert {"reset", "scale", "qk_l2norm", "state_dtype"} <= set(parameters)
    assert len(gdn2.jax.__all__) == 10 and all(callable(getattr(gdn2.jax, name)) for name in gdn2.jax.__all__)


def test_steps_of_narrow_states():
    """A state of 16 bits is widened, stepped in float32 and rounded once."""
    x, _ = support.sample()
    token = [x[name][:, 0] for name in support.names("gdn2")]
    narrow = x["h0"].astype(jnp.bfloat16)
    o, state = gdn2.jax.gdn2_decode_step(*token, narrow, state_dtype="bfloat16")
    wide_o, wide_state = gdn2.jax.gdn2_decode_step(*token, narrow.astype(jnp.float32))
    np.testing.assert_array_equal(o, wide_o)
    np.testing.assert_array_equal(state, wide_state.astype(jnp.bfloat16))


def test_gradients_of_a_step():
    """Those of a sequence of one token; a row that starts anew has none by the state it threw away."""
    x, cotangents = support.sample(T=1)
    token = {name: value[:, 0] for name, value in x.items() if name != "h0"}
    by = cotangents[0][:, 0], cotangents[1]

    def loss(token, state, **options):
        arguments = [token[name] for name in support.names("gdn2")]
        return support.inner(gdn2.jax.gdn2_decode_step(*arguments, state, scale=support.SCALE, **options), by)

    made, of_state = jax.grad(loss, argnums=(0, 1))(token, x["h0"])
    wanted = support.gradients(x, cotangents)
    token_loop.assert_close(made | dict(h0=of_state), {n: value[:, 0] if n != "h0" else value for n, value in wanted.items()})
    reset = jnp.asarray([True, False])
    _, of_state = jax.grad(lambda t, s: loss(t, s, reset=reset), argnums=(0, 1))(token, x["h0"])
    assert not np.any(of_state[0])
    np.testing.assert_array_equal(of_state[1], wanted["h0"][1])
