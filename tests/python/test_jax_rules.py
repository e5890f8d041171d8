"""gdn2.jax against the float64 token loop, and against the library called through NumPy, bit by bit."""

import pytest

pytest.importorskip("jax", reason="jax is not installed")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_support as support  # noqa: E402
import numpy as np  # noqa: E402
import token_loop  # noqa: E402
from jax_support import SCALE  # noqa: E402

import gdn2  # noqa: E402

RULES = list(token_loop.RULES)


@pytest.mark.parametrize("rule", RULES)
def test_outputs_and_gradients(rule):
    x, cotangents = support.sample(rule)
    (o, h_final), pull = jax.vjp(lambda x: support.chunk(x, rule), x)
    reference = support.wide(x)
    token_loop.assert_close(dict(o=o, h_final=h_final), token_loop.forward(reference, rule, SCALE)[0])
    made = pull(tuple(map(jnp.asarray, cotangents)))[0]
    wanted = token_loop.gradients(reference | dict(do=cotangents[0], dh_final=cotangents[1]), rule, SCALE)
    wanted = {name: wanted[f"d{name}"] for name in x}
    token_loop.assert_close(made, wanted)
    # The comparison can fail.
    with pytest.raises(AssertionError):
        token_loop.assert_close({**made, "k": made["k"] * (1 + 1e-5)}, wanted)


def numpy_gates(x, rule):
    """The same problem in the words of gdn2.forward."""
    gates = {name: np.asarray(x[name]) for name in ("g", "b", "w", "beta") if name in x}
    return [np.asarray(x[name]) for name in "qkv"], gates | dict(h0=np.asarray(x["h0"]), scale=SCALE)


@pytest.mark.parametrize("rule", RULES)
def test_bits_are_the_librarys(rule):
    x, cotangents = support.sample(rule)
    tensors, options = numpy_gates(x, rule)
    for value, wanted in zip(jax.jit(lambda x: support.chunk(x, rule))(x), gdn2.forward(*tensors, **options)):
        np.testing.assert_array_equal(value, wanted)
    made = jax.jit(lambda x: support.gradients(x, cotangents, rule))(x)
    wanted = gdn2.backward(*tensors, **options, d_o=cotangents[0], dh_final=cotangents[1])
    for name, gradient in made.items():
        np.testing.assert_array_equal(gradient, wanted[f"d{name}"], err_msg=name)


def test_grouped_value_heads():
    """q, k, g and b of 2 heads for 6 heads of v."""
    x, _ = support.sample(H=2)
    values, cotangents = support.sample(H=6, seed=4)
    x |= {name: values[name] for name in ("v", "w", "h0")}
    (o, h_final), pull = jax.vjp(support.chunk, x)
    outputs, wanted = support.grouped_reference(x, cotangents, 3)
    token_loop.assert_close(dict(o=o, h_final=h_final), outputs)
    token_loop.assert_close(pull(tuple(map(jnp.asarray, cotangents)))[0], wanted)


@pytest.mark.parametrize("heads", [2, 6])
def test_per_head_gates_of_grouped_heads(heads):
    """Gated DeltaNet as in the models: gates of key heads or of value heads, with an axis of 1 or without."""
    x, _ = support.sample("gdn", H=2)
    values, cotangents = support.sample("gdn", H=6, seed=4)
    gates = values if heads == 6 else x
    x = dict(q=x["q"], k=x["k"], v=values["v"], g=gates["g"], beta=gates["beta"], h0=values["h0"])
    repeats = 6 // heads
    full = support.wide(x) | {name: np.repeat(x[name], 3, 2) for name in "qk"}
    full |= {name: np.repeat(x[name], repeats, 2) for name in ("g", "beta")}
    outputs = token_loop.forward(full, "gdn", SCALE)[0]
    made = support.chunk(x, "gdn")
    token_loop.assert_close(dict(zip(("o", "h_final"), made)), outputs)
    one = x | {name: x[name][..., None] for name in ("g", "beta")}
    np.testing.assert_array_equal(support.chunk(one, "gdn")[0], made[0])
    wanted = token_loop.gradients(full | dict(do=cotangents[0], dh_final=cotangents[1]), "gdn", SCALE)
    made = support.gradients(x, cotangents, "gdn")
    for name in ("g", "beta"):
        shape = (*x[name].shape, repeats)
        token_loop.assert_close(made, {name: wanted[f"d{name}"].reshape(shape).sum(-1)})


def test_normalised_keys_and_queries():
    x, cotangents = support.sample()
    x |= {name: 3 * x[name] for name in "qk"}

    def unit(t):
        return t / jnp.sqrt(jnp.sum(jnp.square(t), -1, keepdims=True) + 1e-6)

    def loss(x, **options):
        return support.inner(support.chunk(x, **options), cotangents)

    outside = jax.grad(lambda x: loss(x | {name: unit(x[name]) for name in "qk"}))(x)
    token_loop.assert_close(jax.grad(lambda x: loss(x, qk_l2norm=True))(x), outside)


@pytest.mark.parametrize("dtype, bound", [(jnp.bfloat16, 8e-3), (jnp.float16, 1e-3)])
def test_narrow_types(dtype, bound):
    """Inputs are widened exactly; outputs and gradients are rounded once."""
    x, cotangents = support.sample()
    narrow = {name: value.astype(dtype) if name != "h0" else value for name, value in x.items()}
    same = {name: value.astype(jnp.float32) for name, value in narrow.items()}
    o, h_final = support.chunk(narrow)
    wide_o, wide_h = support.chunk(same)
    assert o.dtype == dtype and h_final.dtype == jnp.float32
    np.testing.assert_array_equal(h_final, wide_h)
    np.testing.assert_array_equal(o, wide_o.astype(dtype))
    rounded = np.asarray(cotangents[0].astype(dtype), np.float32), cotangents[1]
    made = support.gradients(narrow, (rounded[0].astype(dtype), rounded[1]))
    wanted = support.gradients(same, rounded)
    for name, gradient in made.items():
        assert gradient.dtype == narrow[name].dtype
        assert token_loop.relative_error(gradient, wanted[name]) < bound, name


def test_double_precision():
    """float64 tensors are computed in float64, states included."""
    single, cotangents = support.sample()
    reference = support.wide(single)
    with jax.enable_x64(True):
        x = {name: jnp.asarray(value) for name, value in reference.items()}
        o, h_final = support.chunk(x)
        made = support.gradients(x, tuple(by.astype(np.float64) for by in cotangents))
        step = support.STEPS["gdn2"](*(x[name][:, 0] for name in support.names("gdn2")), x["h0"], scale=SCALE)
        first = support.chunk({name: value[:, :1] if name != "h0" else value for name, value in x.items()})
    assert {value.dtype.name for value in (o, h_final, *made.values(), *step)} == {"float64"}
    outputs = token_loop.forward(reference, scale=SCALE)[0]
    wanted = token_loop.gradients(reference | dict(do=cotangents[0], dh_final=cotangents[1]), scale=SCALE)
    for value, by in [(o, outputs["o"]), (h_final, outputs["h_final"])] + [(made[name], wanted[f"d{name}"]) for name in made]:
        assert token_loop.relative_error(value, by) < 1e-13
    np.testing.assert_array_equal(step[0], first[0][:, 0])
    np.testing.assert_array_equal(step[1], first[1])


@pytest.mark.parametrize("rule", RULES)
def test_steps_are_the_sequence(rule):
    x, _ = support.sample(rule)
    step = jax.jit(lambda state, token: support.STEPS[rule](*token, state, scale=SCALE)[::-1])
    state, outputs = x["h0"], []
    for t in range(4):
        state, o = step(state, [x[name][:, t] for name in support.names(rule)])
        outputs.append(o)
    short = {name: value[:, :4] if name != "h0" else value for name, value in x.items()}
    o, h_final = support.chunk(short, rule)
    token_loop.assert_close(dict(o=np.stack(outputs, 1), h_final=state), dict(o=o, h_final=h_final))


def test_empty_and_single():
    for T in (0, 1):
        x, _ = support.sample(T=T)
        o, h_final = support.chunk(x)
        wanted = token_loop.forward(support.wide(x), scale=SCALE)[0]
        assert o.shape == wanted["o"].shape
        np.testing.assert_allclose(h_final, wanted["h_final"], rtol=1e-6, atol=1e-6)
