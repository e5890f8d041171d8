"""gdn2.forward and gdn2.backward against the float64 token loop, over rules and options."""

import numpy as np
import options_loop
import pytest
import token_loop

import gdn2

GATES = ("g", "b", "w", "beta", "h0")


@pytest.mark.parametrize("rule", token_loop.RULES)
def test_rules(rule):
    x = token_loop.sample(rule)
    gates = {name: x[name] for name in GATES if name in x}
    o, h_final = gdn2.forward(x["q"], x["k"], x["v"], **gates)
    reference, _ = token_loop.forward(x, rule)
    token_loop.assert_close({"o": o, "h_final": h_final}, reference)
    d = gdn2.backward(x["q"], x["k"], x["v"], **gates, d_o=x["do"], dh_final=x["dh_final"])
    wanted = {name: value for name, value in token_loop.gradients(x, rule).items() if name[1:] in x}
    assert set(d) == set(wanted)
    token_loop.assert_close(d, wanted)


def test_the_comparison_sees_a_wrong_decay():
    x = token_loop.sample("kda")
    o, _ = gdn2.forward(x["q"], x["k"], x["v"], 1.001 * x["g"], beta=x["beta"], h0=x["h0"])
    with pytest.raises(AssertionError):
        token_loop.assert_close({"o": o}, {"o": token_loop.forward(x, "kda")[0]["o"]})


# Options of the call; those of the sample.
CASES = {
    "grouped heads": ({}, {}),
    "tiled heads, gates of key heads": ({"head_map": "tiled"}, {"key_gates": True}),
    "gates per head, scale": ({"scale": 0.3}, {"per_head": True}),
    "norm": ({"qk_l2norm": True}, {}),
    "softplus": ({"decay": "softplus"}, {"raw": True}),
    "softplus per head": ({"decay": "softplus", "erase": "sigmoid", "write": "sigmoid"}, {"raw": True, "per_head": True}),
    "bounded, two sigmoid": (
        {"decay": "bounded", "lower_bound": -4.0, "erase": "two_sigmoid", "write": "sigmoid"},
        {"raw": True},
    ),
    "everything": (
        {"decay": "softplus", "erase": "sigmoid", "write": "sigmoid", "qk_l2norm": True, "head_map": "tiled"},
        {"raw": True, "B": 1, "N": 4},
    ),
}


def case(name):
    options, shape = CASES[name]
    x = options_loop.sample(**shape)
    if shape.get("N"):
        x["cu_seqlens"] = np.array([0, 7, 7, 8, 16])
    return x, options


@pytest.mark.parametrize("name", CASES)
def test_options_forward(name):
    x, options = case(name)
    o, h_final = gdn2.forward(**x, **options)
    token_loop.assert_close({"o": o, "h_final": h_final}, options_loop.forward(x, options))
    if "cu_seqlens" in x:
        assert not o[:, 16:].any(), "tokens of no sequence"


@pytest.mark.parametrize("name", CASES)
def test_options_backward(name):
    """Every gradient along a direction of its own, and all together, against differences of the float64 loop."""
    x, options = case(name)
    r = np.random.default_rng(1)
    o, h_final = gdn2.forward(**x, **options)
    d_o, dh_final = (r.normal(size=y.shape).astype(np.float32) for y in (o, h_final))
    d = gdn2.backward(**x, **options, d_o=d_o, dh_final=dh_final)
    assert set(d) == {"d" + key for key in x if key != "cu_seqlens"}
    for key, gradient in d.items():
        assert gradient.shape == x[key[1:]].shape and gradient.dtype == np.float32
        # Along the gradient itself nothing cancels.
        direction = gradient.astype(np.float64) / np.linalg.norm(gradient)
        expected = options_loop.slope(x, options, d_o, dh_final, {key[1:]: direction})
        assert np.linalg.norm(gradient) > 1e-2
        assert abs((gradient * direction).sum() - expected) <= 3e-6 * abs(expected), key


def test_beta_is_b_and_w():
    x = token_loop.sample("kda")
    both = {"d_o": x["do"], "dh_final": x["dh_final"], "h0": x["h0"]}
    one = gdn2.backward(x["q"], x["k"], x["v"], x["g"], beta=x["beta"], **both)
    two = gdn2.backward(x["q"], x["k"], x["v"], x["g"], x["beta"], x["beta"], **both)
    assert np.array_equal(one["dbeta"], two["db"] + two["dw"])
    assert all(np.array_equal(one[name], two[name]) for name in ("dq", "dk", "dv", "dg", "dh0"))


def test_gradients_by_name():
    x = token_loop.sample("kda")
    arguments = {"g": x["g"], "beta": x["beta"], "d_o": x["do"]}
    every = gdn2.backward(x["q"], x["k"], x["v"], **arguments)
    some = gdn2.backward(x["q"], x["k"], x["v"], **arguments, gradients=["dv", "dh0"])
    assert set(some) == {"dv", "dh0"} and np.array_equal(some["dv"], every["dv"])
    assert some["dh0"].shape == x["h0"].shape and np.abs(some["dh0"]).max() > 1e-2
    with pytest.raises(ValueError, match="gradients has 'db'; it may have"):
        gdn2.backward(x["q"], x["k"], x["v"], **arguments, gradients=["db"])


def test_checkpoints_do_not_change_bits():
    x = token_loop.sample("gdn2", T=200)
    arguments = {name: x[name] for name in ("q", "k", "v", "g", "b", "w")}
    first = gdn2.backward(**arguments, d_o=x["do"])
    for every in (1, 3, 13):
        again = gdn2.backward(**arguments, d_o=x["do"], checkpoint_every=every)
        assert all(np.array_equal(first[name], again[name]) for name in first)


def test_snapshots_do_not_change_bits():
    x = token_loop.sample("gdn2", T=200)
    arguments = {name: x[name] for name in ("q", "k", "v", "g", "b", "w")}
    first = gdn2.backward(**arguments, d_o=x["do"])
    B, _, H, K = x["q"].shape
    for every in (16, 48, 256):
        states = np.full((B, 200 // every, H, K, x["v"].shape[3]), np.nan, np.float32)
        gdn2.forward(**arguments, snapshots=states, snapshot_every=every)
        assert not np.isnan(states).any()
        again = gdn2.backward(**arguments, d_o=x["do"], snapshots=states, snapshot_every=every)
        assert all(np.array_equal(first[name], again[name]) for name in first)
    with pytest.raises(ValueError, match="snapshots has shape"):
        gdn2.backward(**arguments, d_o=x["do"], snapshots=states, snapshot_every=16)
    with pytest.raises(ValueError, match="checkpoint_every is 1; it must be 0 where snapshots are given"):
        gdn2.backward(**arguments, d_o=x["do"], snapshots=states, snapshot_every=256, checkpoint_every=1)


def test_residual_does_not_change_bits():
    x = token_loop.sample("gdn2", T=50)
    arguments = {name: x[name] for name in ("q", "k", "v", "g", "b", "w", "h0")}
    first = gdn2.backward(**arguments, d_o=x["do"])
    B, T, H, V = x["v"].shape
    wide = np.full((B, H, T, V), np.nan, np.float32)
    residual = wide.swapaxes(1, 2)
    gdn2.forward(**arguments, residual=residual)
    # What the last token writes, from the state before it.
    before = gdn2.forward(**{name: value[:, :-1] if name != "h0" else value for name, value in arguments.items()})[1]
    last = {name: arguments[name][:, -1].astype(np.float64) for name in "kvgbw"}
    read = np.einsum("bhk,bhkv->bhv", last["b"] * last["k"] * np.exp(last["g"]), before)
    np.testing.assert_allclose(residual[:, -1], last["w"] * last["v"] - read, rtol=1e-4, atol=1e-5)
    again = gdn2.backward(**arguments, d_o=x["do"], residual=residual)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    with pytest.raises(ValueError, match="residual has shape"):
        gdn2.backward(**arguments, d_o=x["do"], residual=residual[:, 1:])
    with pytest.raises(ValueError, match="residual"):
        gdn2.forward(**arguments, residual=x["v"])


def test_float64():
    x = {name: value.astype(np.float64) for name, value in token_loop.sample("gdn2").items()}
    arguments = {name: x[name] for name in ("q", "k", "v", "g", "b", "w", "h0")}
    o, h_final = gdn2.forward(**arguments)
    reference, _ = token_loop.forward(x)
    assert o.dtype == h_final.dtype == np.float64
    d = gdn2.backward(**arguments, d_o=x["do"], dh_final=x["dh_final"])
    for values, wanted in (({"o": o, "h_final": h_final}, reference), (d, token_loop.gradients(x))):
        for name in wanted:
            assert token_loop.relative_error(values[name], wanted[name]) < 1e-13, name


def test_16_bit():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = token_loop.sample("kda")
    for narrow, bits in ((np.float16, 11), (ml_dtypes.bfloat16, 8)):
        y = {name: value.astype(narrow) if name in ("q", "k", "v", "beta", "do") else value for name, value in x.items()}
        wide = {name: value.astype(np.float32) for name, value in y.items()}
        o, h_final = gdn2.forward(y["q"], y["k"], y["v"], y["g"], beta=y["beta"], h0=y["h0"])
        d = gdn2.backward(y["q"], y["k"], y["v"], y["g"], beta=y["beta"], h0=y["h0"], d_o=y["do"])
        assert (o.dtype, h_final.dtype, d["dq"].dtype, d["dg"].dtype, d["dbeta"].dtype) == (narrow, "f4", narrow, "f4", narrow)
        reference, _ = token_loop.forward(wide, "kda")
        assert token_loop.relative_error(o, reference["o"]) < 2.0**-bits
        del wide["dh_final"]
        gradients = token_loop.gradients(wide, "kda")
        assert token_loop.relative_error(d["dbeta"], gradients["dbeta"]) < 2.0**-bits
        assert token_loop.relative_error(h_final, reference["h_final"]) < 1e-6
