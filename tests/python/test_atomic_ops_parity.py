"""gdn2.atomic_ops against atomic-ops 0.1.0 itself, function by function, with the bounds of test_seed_parity.py."""

import pytest

seed_package = pytest.importorskip("seed_package", reason="atomic-ops 0.1.0 and jax are not installed")

import atomic_ops as seed  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import token_loop  # noqa: E402
from atomic_ops import gdn2_pipeline  # noqa: E402
from seed_package import SCALE, interpreted  # noqa: E402

from gdn2 import atomic_ops  # noqa: E402
from gdn2.atomic_ops import gdn2_bwd, gdn2_fwd, reference  # noqa: E402

OUTPUT_BOUND, GRADIENT_BOUND = 2e-6, 1e-5
# The kernels want a head size of 128; the rest is small, for the interpreter is slow.
L, BT, WY_EPS = 64, 32, 0.02
INPUTS = ("q", "k", "v", "w", "b", "g", "h0")


def assert_near(value, wanted, bound, name=""):
    wanted = np.asarray(wanted, np.float64)
    assert np.all(np.isfinite(wanted)) and np.sqrt(np.mean(np.square(wanted))) > 1e-5, f"{name}: nothing to compare with"
    error = token_loop.relative_error(value, wanted)
    assert error <= bound, f"{name}: relative error {error:.3g} is above {bound}"


def config(package):
    return package.KernelConfig(bt=BT, bc=BT // 2, mb=8, wy_eps=WY_EPS)


def sample(D=128, V=None, dtype=np.float32):
    x = token_loop.sample("gdn2", 1, L, 2, D, V or D, seed=5)
    cotangents = x.pop("do"), x.pop("dh_final")
    return [jnp.asarray(x[name], np.float32 if name in ("g", "h0") else dtype) for name in INPUTS], cotangents


def pulled(function, inputs, cotangents):
    """Outputs, and gradients by all inputs."""
    outputs, pull = jax.vjp(function, *inputs)
    return outputs, pull(tuple(jnp.asarray(by, value.dtype) for by, value in zip(cotangents, outputs)))


@pytest.fixture(scope="module")
def kernels():
    """Of the seed, interpreted: outputs, gradients by the rule of its trainable function, and residuals of the forward."""
    inputs, cotangents = sample()
    *outputs, residuals = interpreted(
        jax.jit(lambda *x: seed.gdn2_fwd.gdn2_pallas_forward_with_residuals(*x[:6], SCALE, h0=x[6], config=config(seed)))
    )(*inputs)
    kept = residuals | dict(zip(INPUTS, inputs))
    gradients = interpreted(jax.jit(lambda kept: gdn2_pipeline._gdn2_core_bwd(SCALE, config(seed), kept, cotangents)))(kept)
    return inputs, cotangents, outputs, gradients, residuals


def test_trainable(kernels):
    inputs, cotangents, outputs, gradients, _ = kernels

    def trainable(*x):
        return atomic_ops.gdn2_pallas_forward_trainable(*x[:6], SCALE, h0=x[6], config=config(atomic_ops))

    made = jax.jit(lambda *x: pulled(trainable, x, cotangents))(*inputs)
    for name, value, wanted in zip(("o", "h_final"), made[0], outputs, strict=True):
        assert_near(value, wanted, OUTPUT_BOUND, name)
    for name, value, wanted in zip(INPUTS, made[1], gradients, strict=True):
        assert_near(value, wanted, GRADIENT_BOUND, name)
    # Without damping the result is another one: the comparison sees it.
    plain = atomic_ops.KernelConfig(bt=BT, bc=BT // 2, mb=8)
    exact = atomic_ops.gdn2_pallas_forward_trainable(*inputs[:6], SCALE, h0=inputs[6], config=plain)
    with pytest.raises(AssertionError, match="above"):
        assert_near(exact[0], outputs[0], OUTPUT_BOUND)


def test_forward_and_residuals(kernels):
    inputs, _, outputs, _, residuals = kernels
    arguments = (*inputs[:6], SCALE, inputs[6], config(atomic_ops))
    o, h_final = atomic_ops.gdn2_pallas_forward(*arguments)
    assert_near(o, outputs[0], OUTPUT_BOUND, "o")
    assert_near(h_final, outputs[1], OUTPUT_BOUND, "h_final")
    with_residuals = atomic_ops.gdn2_pallas_forward_with_residuals(*arguments)
    np.testing.assert_array_equal(with_residuals[0], o)
    np.testing.assert_array_equal(with_residuals[1], h_final)
    assert set(with_residuals[2]) == set(residuals)
    for name, wanted in residuals.items():
        assert_near(with_residuals[2][name], wanted, OUTPUT_BOUND, name)


def test_forward_kernels(kernels):
    (q, k, v, w, b, g, h0), _, _, _, r = kernels
    mine = config(atomic_ops)
    made = dict(zip(("Aqk", "Akk"), gdn2_fwd.build_chunk_scores_pallas(q, k, b, g, SCALE, mine, interpret=True)))
    made["A"] = gdn2_fwd.wy_solve_pallas(r["Akk"], mine)
    rebuilt = gdn2_fwd.recompute_wy_pallas(q, k, v, w, b, g, r["A"], mine)
    made |= zip(("w_pseudo", "u", "kg", "qg", "gc_last"), rebuilt)
    carried = [r[name] for name in ("Aqk", "w_pseudo", "u", "kg", "qg", "gc_last")]
    o, h_final, h_pre_all, v_new_all = gdn2_fwd.gdn2_inter_chunk_combine_with_state(*carried, SCALE, h0=h0, config=mine)
    made |= dict(h_pre_all=jnp.moveaxis(h_pre_all, 0, 2), v_new_all=jnp.moveaxis(v_new_all, 0, 2))
    for name, wanted in r.items():
        assert_near(made[name], wanted, OUTPUT_BOUND, name)
    for value, wanted in zip(gdn2_fwd.gdn2_inter_chunk_combine(*carried, SCALE, h0=h0, config=mine), (o, h_final)):
        np.testing.assert_array_equal(value, wanted)


def test_backward_kernels(kernels):
    """One by one on the seed's residuals, put together to its gradients."""
    (q, k, v, w, b, g, h0), (d_o, dh_final), _, gradients, r = kernels
    limits, dh_final = config(atomic_ops), jnp.asarray(dh_final)

    def chunks(t):
        return jnp.moveaxis(jnp.asarray(t).reshape(1, L // BT, BT, 2, 128), (1, 3), (2, 1))

    def tokens(t):
        return jnp.moveaxis(t, (1, 2, 3), (3, 1, 2)).reshape(1, L, 2, 128)

    do, gc = chunks(d_o), jnp.cumsum(chunks(g), -2)
    dAqk, dv_partial = gdn2_bwd.dav_backward_pallas(r["Aqk"], r["v_new_all"], do, limits)
    carried = [r[name] for name in ("w_pseudo", "qg", "kg", "gc_last")]
    dh_all, dh0, dv_all = gdn2_bwd.gdn2_dhu_backward(do, dv_partial, *carried, SCALE, dht=dh_final, config=limits)
    dh_next = jnp.concatenate([dh_all[:, :, 1:], dh_final[:, :, None]], 2)
    kept = [r[name] for name in ("A", "Akk", "h_pre_all", "v_new_all")]
    b3 = gdn2_bwd.wy_dqkg_backward_pallas(*map(chunks, (q, k, b, w, v)), gc, *kept, do, dv_all, dh_next, SCALE, limits)
    dq, dk, db, dgc = gdn2_bwd.intra_backward_pallas(dAqk, b3["dAkk"], q, k, b, g, SCALE, limits)
    dg = gdn2_bwd.reverse_cumsum_bwd(b3["dgc"] + dgc, BT, limits)
    made = [b3["dq"] + dq, b3["dk"] + dk, b3["dv_raw"], b3["dw"], b3["db"] + db, dg]
    for name, value, wanted in zip(INPUTS, [*map(tokens, made), dh0], gradients, strict=True):
        assert_near(value, wanted, GRADIENT_BOUND, name)


# The references and the functions that choose run on a CPU as they are, with any head sizes.
def chosen(package, name):
    if name == "gdn2_chunked_wy_reference":
        return lambda q, k, v, w, b, g, h0: package.gdn2_chunked_wy_reference(
            q, k, v, g, b, w, SCALE, chunk_size=BT, h0=h0, wy_eps=WY_EPS
        )
    if name == "gdn2_token_serial_reference":
        return lambda q, k, v, w, b, g, h0: package.gdn2_token_serial_reference(q, k, v, g, b, w, SCALE, h0=h0)
    return lambda q, k, v, w, b, g, h0: getattr(package, name)(q, k, v, w, b, g, SCALE, h0=h0, config=config(package))


def assert_outputs(made, wanted):
    for name, value, expected in zip(("o", "h_final"), made, wanted, strict=True):
        assert value.dtype == expected.dtype
        # bfloat16: a value half-way between two may be rounded either way.
        assert_near(value, expected, OUTPUT_BOUND if value.dtype == jnp.float32 else 1e-3, name)


@pytest.mark.parametrize("name, dtype", [("gdn2_token_serial_reference", jnp.bfloat16), ("gdn2_forward_trainable", np.float32)])
def test_gradients_of_reference_and_fallback(name, dtype):
    """Large ones: the pipeline clips its own to 1e4, a reference does not."""
    inputs, cotangents = sample(8, 12, dtype)
    cotangents = [1e7 * by for by in cotangents]
    wanted = jax.jit(lambda *x: pulled(chosen(seed, name), x, cotangents))(*inputs)
    made = jax.jit(lambda *x: pulled(chosen(atomic_ops, name), x, cotangents))(*inputs)
    assert_outputs(made[0], wanted[0])
    assert max(float(jnp.max(jnp.abs(x))) for x in wanted[1]) > 1e6
    for argument, value, expected in zip(INPUTS, made[1], wanted[1], strict=True):
        assert value.dtype == expected.dtype
        assert_near(value, expected, GRADIENT_BOUND if value.dtype == jnp.float32 else 5e-3, argument)


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_damped_reference(dtype):
    inputs, _ = sample(8, 12, dtype)
    wanted = jax.jit(chosen(seed, "gdn2_chunked_wy_reference"))(*inputs)
    assert_outputs(jax.jit(chosen(atomic_ops, "gdn2_chunked_wy_reference"))(*inputs), wanted)


def test_gradients_of_the_damped_reference():
    """Those of the kernels, but for the clip."""
    inputs, cotangents = sample()
    large = [1e7 * by for by in cotangents]
    made = pulled(chosen(atomic_ops, "gdn2_chunked_wy_reference"), inputs, large)[1]
    wanted = pulled(chosen(atomic_ops, "gdn2_pallas_forward_trainable"), inputs, cotangents)[1]
    for name, value, expected in zip(INPUTS, made, wanted, strict=True):
        assert_near(value, 1e7 * expected, GRADIENT_BOUND, name)


def test_defaults():
    """h0 None and config None: chunks of 256, and no damping in the functions that choose. The two are one on a CPU."""
    r = np.random.default_rng(0)
    shape = (1, 256, 1, 4)
    k = r.normal(size=shape)
    arrays = (r.normal(size=shape), k / np.linalg.norm(k, axis=-1, keepdims=True), *r.uniform(0.1, 0.9, (3, *shape)))
    arguments = [jnp.asarray(x, jnp.float32) for x in (*arrays, -0.1 * arrays[4])]
    made = atomic_ops.gdn2_forward(*arguments, 0.5)
    for value, wanted, other in zip(made, seed.gdn2_forward(*arguments, 0.5), atomic_ops.gdn2_forward_trainable(*arguments, 0.5)):
        assert_near(value, wanted, OUTPUT_BOUND)
        np.testing.assert_array_equal(value, other)


def test_inverse():
    Akk = jnp.tril(jnp.asarray(np.random.default_rng(2).normal(size=(2, 3, 24, 24)), jnp.float32) * 0.3, -1)
    A = reference._wy_inverse(Akk, eps=0.01)
    identity = (np.eye(24) + 0.99 * np.asarray(Akk, np.float64)) @ np.asarray(A, np.float64)
    np.testing.assert_allclose(identity, np.broadcast_to(np.eye(24), A.shape), atol=1e-5)
