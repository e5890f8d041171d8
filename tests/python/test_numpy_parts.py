"""gdn2.conv and gdn2.norm and their gradients against NumPy in float64."""

import numpy as np
import pytest
import token_loop

import gdn2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def convolve(x, weight, bias=None, state=None, silu=False):
    """{y, state} in float64."""
    x, weight = np.asarray(x, np.float64), np.asarray(weight, np.float64)
    B, T, D = x.shape
    W = weight.shape[1]
    before = np.zeros((B, D, W - 1)) if state is None else np.asarray(state, np.float64)
    line = np.concatenate([before.swapaxes(1, 2), x], axis=1)
    z = sum(weight[:, j] * line[:, j : j + T] for j in range(W)) + (0 if bias is None else np.asarray(bias, np.float64))
    return {"y": z * sigmoid(z) if silu else z, "state": line[:, T:].swapaxes(1, 2)}


def normalise(x, weight=None, z=None, gate="silu", plus_one=False, eps=1e-6):
    x = np.asarray(x, np.float64)
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    if weight is not None:
        y = y * (np.asarray(weight, np.float64) + plus_one)
    if z is not None:
        z = np.asarray(z, np.float64)
        y = y * (z * sigmoid(z) if gate == "silu" else sigmoid(z))
    return y


def check_slopes(function, inputs, gradients, tolerance=3e-6, step=1e-5):
    """Each gradient along itself against central differences of function({name: float64 array})."""
    inputs = {name: np.asarray(value, np.float64) for name, value in inputs.items()}
    for name, gradient in gradients.items():
        direction = gradient.astype(np.float64) / np.linalg.norm(gradient)
        moved = [function(inputs | {name: inputs[name] + sign * step * direction}) for sign in (1, -1)]
        expected = (moved[0] - moved[1]) / (2 * step)
        assert np.linalg.norm(gradient) > 1e-2, name
        assert abs((gradient * direction).sum() - expected) <= tolerance * abs(expected), name


def normal(*shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.fixture(params=[(2, True), (3, False), (4, True)], ids=["W=2", "W=3", "W=4"])
def problem(request):
    W, silu = request.param
    return {
        "x": normal(3, 17, 37, seed=0),
        "weight": normal(37, W, seed=1),
        "bias": normal(37, seed=2),
        "state": normal(3, 37, W - 1, seed=3),
    }, silu


def test_conv(problem):
    inputs, silu = problem
    y, state = gdn2.conv(**inputs, silu=silu)
    reference = convolve(**inputs, silu=silu)
    token_loop.assert_close({"y": y}, {"y": reference["y"]})
    assert np.array_equal(state, reference["state"].astype(np.float32))
    plain, last = gdn2.conv(inputs["x"], inputs["weight"], silu=silu, final_state=False)
    token_loop.assert_close({"y": plain}, {"y": convolve(inputs["x"], inputs["weight"], silu=silu)["y"]})
    assert last is None


def test_conv_gradients(problem):
    inputs, silu = problem
    dy, dstate = normal(3, 17, 37, seed=4), normal(*inputs["state"].shape, seed=5)
    d = gdn2.conv_backward(**inputs, silu=silu, dy=dy, dstate_final=dstate)
    assert {name: value.shape for name, value in d.items()} == {"d" + name: value.shape for name, value in inputs.items()}

    def loss(moved):
        result = convolve(**moved, silu=silu)
        return (result["y"] * dy).sum() + (result["state"] * dstate).sum()

    check_slopes(loss, inputs, {name[1:]: value for name, value in d.items()})
    assert set(gdn2.conv_backward(**inputs, dy=dy, gradients="dweight")) == {"dweight"}


def test_conv_in_steps(problem):
    inputs, silu = problem
    whole, last = gdn2.conv(**inputs, silu=silu)
    state = inputs["state"].copy()
    parts = []
    for begin, end in ((0, 1), (1, 2), (2, 9), (9, 17)):
        y, same = gdn2.conv(inputs["x"][:, begin:end], inputs["weight"], inputs["bias"], state=state, silu=silu, state_out=state)
        assert same is state
        parts.append(y)
    assert np.array_equal(np.concatenate(parts, axis=1), whole) and np.array_equal(state, last)


def test_conv_of_packed_sequences(problem):
    inputs, silu = problem
    x, cu = inputs["x"][:1], np.array([0, 5, 5, 16], np.int32)
    y, states = gdn2.conv(x, inputs["weight"], inputs["bias"], state=inputs["state"], silu=silu, cu_seqlens=cu)
    for n in range(3):
        part = dict(inputs, x=x[:, cu[n] : cu[n + 1]], state=inputs["state"][n : n + 1])
        one, last = gdn2.conv(**part, silu=silu)
        assert np.array_equal(y[:, cu[n] : cu[n + 1]], one) and np.array_equal(states[n : n + 1], last)
    assert not y[:, 16:].any()


def test_conv_with_a_pool_of_states(problem):
    inputs, silu = problem
    pool = normal(6, *inputs["state"].shape[1:], seed=6)
    before = pool.copy()
    slots, fresh = np.array([4, -1, 0]), np.array([False, False, True])
    y, same = gdn2.conv(**dict(inputs, state=pool), silu=silu, slots=slots, fresh=fresh, state_out=pool)
    state = np.stack([before[4], before[1], np.zeros_like(before[0])])
    expected, last = gdn2.conv(**dict(inputs, state=state), silu=silu)
    assert np.array_equal(y[[0, 2]], expected[[0, 2]]) and np.array_equal(pool[[4, 0]], last[[0, 2]])
    assert same is pool and np.array_equal(pool[[1, 2, 3, 5]], before[[1, 2, 3, 5]])
    with pytest.raises(ValueError, match="state_out is None; with slots"):
        gdn2.conv(**dict(inputs, state=pool), slots=slots)


NORMS = [{}, {"plus_one": True}, {"gate": "sigmoid"}, {"eps": 1e-2}]


@pytest.mark.parametrize("options", NORMS)
@pytest.mark.parametrize("gated", [True, False])
def test_norm(options, gated):
    inputs = {"x": normal(2, 5, 3, 37, seed=0), "weight": normal(37, seed=1)} | (
        {"z": normal(2, 5, 3, 37, seed=2)} if gated else {}
    )
    y = gdn2.norm(**inputs, **options)
    token_loop.assert_close({"y": y}, {"y": normalise(**inputs, **options)})
    dy = normal(2, 5, 3, 37, seed=3)
    d = gdn2.norm_backward(**inputs, **options, dy=dy)
    assert set(d) == {"d" + name for name in inputs}

    def loss(moved):
        return (normalise(**moved, **options) * dy).sum()

    check_slopes(loss, inputs, {name[1:]: value for name, value in d.items()})


def test_norm_of_any_axes():
    x = normal(2, 5, 3, 37, seed=0)
    y = gdn2.norm(x)
    assert np.array_equal(gdn2.norm(x[0]), y[0]) and np.array_equal(gdn2.norm(x[0, 0, 0]), y[0, 0, 0])
    assert np.array_equal(gdn2.norm(x.swapaxes(0, 1)), y.swapaxes(0, 1))
    same = x.copy()
    assert gdn2.norm(same, out=same) is same and np.array_equal(same, y)


def test_float64_parts():
    x, weight = normal(2, 9, 6, seed=0).astype(np.float64), normal(6, 3, seed=1).astype(np.float64)
    y, state = gdn2.conv(x, weight, silu=True)
    assert y.dtype == state.dtype == np.float64
    assert token_loop.relative_error(y, convolve(x, weight, silu=True)["y"]) < 1e-15
    assert token_loop.relative_error(gdn2.norm(x, weight[:, 0], x), normalise(x, weight[:, 0], x)) < 1e-15


def test_errors_name_the_argument():
    x, weight = normal(2, 9, 6, seed=0), normal(6, 3, seed=1)
    for call, message in (
        (lambda: gdn2.conv(x, normal(6, 5, seed=1)), "W is 5; it must be from 2 to 4"),
        (lambda: gdn2.conv(x, normal(5, 3, seed=1)), r"weight has shape \(5, 3\); it must be \(6, 3\)"),
        (lambda: gdn2.conv(x[0], weight), r"x has shape \(9, 6\); it must be \[B, T, D\]"),
        (lambda: gdn2.conv(x, weight, state=normal(2, 6, 3, seed=2)), r"state has shape \(2, 6, 3\); it must be \(2, 6, 2\)"),
        (lambda: gdn2.norm(x, normal(7, seed=1)), r"weight has shape \(7,\); it must be \(6,\)"),
        (lambda: gdn2.norm(x, gate="relu"), "gate is 'relu'; it must be one of 'silu', 'sigmoid'"),
        (lambda: gdn2.norm(x, eps=-1.0), "eps is -1"),
        (lambda: gdn2.norm(x, eps=0), "eps is 0.0; it must be finite and above 0"),
        (lambda: gdn2.conv(x, weight, out=x), "y: data is .* overlaps x at .* must not overlap"),
        (lambda: gdn2.conv_backward(x, weight, gradients=["dz"]), "gradients has 'dz'; it may have dx, dweight, dbias, dstate"),
        (lambda: gdn2.norm_backward(x, dy=x, gradients=["dz"]), "gradients has 'dz'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
