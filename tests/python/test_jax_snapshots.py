"""Training in JAX: the forward keeps states and the residual for its backward, under every transformation, and nothing else makes
it keep any."""

import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_support as support  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import AxisType, PartitionSpec  # noqa: E402

import gdn2  # noqa: E402
from gdn2.jax import _rule  # noqa: E402

LONG = dict(T=270, H=2)


@pytest.fixture(scope="module")
def case():
    return support.sample(**LONG)


def library(x, cotangents, **options):
    """The library's gradients, for which it computes the states again."""
    a = {name: np.asarray(value) for name, value in x.items()}
    q, k, v, g, b, w = (a[name] for name in "qkvgbw")
    d_o, dh_final = map(np.asarray, cotangents)
    made = gdn2.backward(q, k, v, g, b, w, h0=a["h0"], d_o=d_o, dh_final=dh_final, scale=support.SCALE, **options)
    assert all(np.abs(made[f"d{name}"]).max() > 1e-3 for name in a)
    return {name: made[f"d{name}"] for name in a}


def assert_same(made, wanted):
    jax.tree.map(np.testing.assert_array_equal, made, wanted)


def keeps(function, *arguments):
    """Whether states are written by a forward, and read by a backward; with them the residual."""
    text = str(jax.make_jaxpr(function)(*arguments))
    found = "snapshots_out" in text, " snapshots'" in text
    assert found == ("residual_out snapshots_out" in text, " residual snapshots'" in text)
    return found


def test_gradients_start_from_kept_states(case):
    assert keeps(support.gradients, *case) == (True, True)
    assert_same(jax.jit(support.gradients)(*case), library(*case))


def test_nothing_else_keeps_any(case):
    x, cotangents = case
    assert keeps(support.chunk, x) == (False, False)
    assert keeps(lambda y: jax.grad(lambda s: s * jnp.sum(support.chunk(y)[0]))(1.0), x) == (False, False)
    short = {name: value[:, :127] if name != "h0" else value for name, value in x.items()}, (cotangents[0][:, :127], cotangents[1])
    assert keeps(support.gradients, *short) == (False, False)
    text = str(jax.make_jaxpr(support.gradients)(*short))
    assert "residual_out'" in text and " residual'" in text
    assert_same(jax.jit(support.gradients)(*short), library(*short))
    with jax.enable_x64(True):
        wide = {name: jnp.asarray(value) for name, value in support.wide(x).items()}
        assert keeps(support.gradients, wide, tuple(by.astype(np.float64) for by in cotangents)) == (False, False)


def test_the_states_are_read(case):
    """A wrong one gives other gradients."""
    x, cotangents = case
    options = _rule.Options(support.SCALE, final=True)
    left = _rule._run(options, x, True)
    kept, residual = left["snapshots_out"], left["residual_out"]
    assert_same((left["o"], left["h_final"]), support.chunk(x))
    first = {name: value[:, :256] if name != "h0" else value for name, value in x.items()}
    np.testing.assert_array_equal(kept[:, 1], support.chunk(first)[1])

    def gradient(states):
        given = x | dict(d_o=cotangents[0], dh_final=cotangents[1], snapshots=states)
        return _rule.call("gdn2_backward", options, [jax.ShapeDtypeStruct(x["q"].shape, jnp.float32)], given, ["dq"])[0]

    wanted, made = gradient(kept), gradient(kept.at[0, 0, 0].add(1.0))
    np.testing.assert_array_equal(wanted, library(*case)["q"])
    changed = np.any(np.asarray(wanted != made), axis=-1)
    assert changed[0, 128:256, 0].all() and changed.sum() == 128

    def from_residual(residual):
        given = x | dict(d_o=cotangents[0], dh_final=cotangents[1], residual=residual, snapshots=kept)
        return _rule.call("gdn2_backward", options, [jax.ShapeDtypeStruct(x["q"].shape, jnp.float32)], given, ["dq"])[0]

    assert_same(from_residual(residual), wanted)
    assert np.any(np.asarray(from_residual(residual.at[0, 0, 0].add(1.0)) != wanted))


OFFSETS = np.array([[0, 130, 130, 131, 400], [0, 128, 256, 384, 400], [0, 1, 2, 399, 400]])


@pytest.fixture(scope="module")
def packed():
    """Room for four sequences of 400 tokens."""
    x, cotangents = support.sample(B=1, T=400, H=2)
    r = np.random.default_rng(8)
    x["h0"], dh_final = (r.normal(size=(4, *x["h0"].shape[1:])).astype(np.float32) for _ in range(2))
    return x, (cotangents[0], dh_final)


@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_packed_sequences(packed, kind):
    """Lengths that are known only when the compiled call runs."""
    gradients = jax.jit(lambda offsets: support.gradients(*packed, cu_seqlens=offsets))
    with jax.enable_x64(kind is np.int64):
        assert keeps(gradients, jnp.asarray(OFFSETS[0], kind)) == (True, True)
        for offsets in OFFSETS:
            assert_same(gradients(jnp.asarray(offsets, kind)), library(*packed, cu_seqlens=offsets))


def test_packed_sequences_under_vmap(packed):
    """Rows that share the tokens and are cut differently."""
    made = jax.vmap(lambda offsets: support.gradients(*packed, cu_seqlens=offsets))(jnp.asarray(OFFSETS))
    for i, offsets in enumerate(OFFSETS):
        assert_same({name: value[i] for name, value in made.items()}, library(*packed, cu_seqlens=offsets))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("names", [("q",), tuple("qkvgbw") + ("h0",)])
def test_vmap(case, batch, names):
    """Rows that share the other inputs, or nothing; gradients inside and outside of it."""
    x, cotangents = {name: value[:batch] for name, value in case[0].items()}, tuple(by[:batch] for by in case[1])
    rows = [x | {name: x[name] * factor for name in names} for factor in (1.0, 0.5, 0.25)]
    many = x | {name: jnp.stack([row[name] for row in rows]) for name in names}
    axes = {name: 0 if name in names else None for name in x}
    inside = jax.vmap(lambda x: support.gradients(x, cotangents), (axes,))
    loss = jax.vmap(lambda x: support.inner(support.chunk(x), cotangents), (axes,))
    outside = jax.grad(lambda m: jnp.sum(loss(m)))
    assert keeps(inside, many) == keeps(outside, many) == (True, True)
    made, whole = inside(many), outside(many)
    for i, row in enumerate(rows):
        wanted = library(row, cotangents)
        assert_same({name: made[name][i] for name in x}, wanted)
        assert_same({name: whole[name][i] for name in names}, {name: wanted[name] for name in names})


@pytest.mark.parametrize("batch", [1, 2])
def test_vmap_over_cotangents(case, batch):
    """States and inputs are the same for all rows."""
    x, cotangents = {name: value[:batch] for name, value in case[0].items()}, tuple(by[:batch] for by in case[1])
    pull = jax.vjp(support.chunk, x)[1]
    many = tuple(jnp.stack([by, -2 * by]) for by in cotangents)
    (made,) = jax.vmap(pull)(many)
    for i in range(2):
        assert_same({name: made[name][i] for name in x}, library(x, tuple(by[i] for by in many)))


def test_scan_and_checkpoint(case):
    """Two layers of the same sequence, one after the other, their states among the residuals; then computed twice."""
    x, cotangents = case

    def scanned(layer):
        def loss(x):
            def body(h0, factor):
                o, h_final = layer(x | dict(h0=h0, v=factor * x["v"]))
                return h_final, o

            h_final, o = jax.lax.scan(body, x["h0"], jnp.asarray([1.0, 2.0]))
            return support.inner((o[1], h_final), cotangents)

        return loss

    def plain(x):
        h0 = support.chunk(x)[1]
        return support.inner(support.chunk(x | dict(h0=h0, v=2 * x["v"])), cotangents)

    wanted = jax.grad(plain)(x)
    again = jax.checkpoint(support.chunk, policy=jax.checkpoint_policies.nothing_saveable)
    for layer in (support.chunk, again):
        assert keeps(jax.grad(scanned(layer)), x) == (True, True)
        made = jax.jit(jax.grad(scanned(layer)))(x)
        for name in x:
            np.testing.assert_allclose(made[name], wanted[name], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.skipif(len(jax.devices()) < 2, reason="XLA was started with one device before this file")
@pytest.mark.parametrize("check", [True, False])
def test_shard_map(case, check):
    x, cotangents = case
    mesh = jax.make_mesh((2,), ("x",), axis_types=(AxisType.Auto,))
    tokens, state = PartitionSpec(None, None, "x"), PartitionSpec(None, "x")
    specs = {name: state if name == "h0" else tokens for name in x}
    sharded = jax.shard_map(support.chunk, mesh=mesh, in_specs=(specs,), out_specs=(tokens, state), check_vma=check)
    made = jax.jit(jax.grad(lambda x: support.inner(sharded(x), cotangents)))
    assert keeps(made, x) == (True, True)
    assert_same(made(x), library(x, cotangents))
