"""Numbers that are none are refused by every surface before anything is computed, with one sentence: a ValueError."""

import math

import numpy as np
import pytest
import token_loop

import gdn2

NONE = [math.nan, math.inf, -math.inf, 1e39]
TOKENS = ("q", "k", "v", "g", "b", "w")


def sample():
    return {name: value for name, value in token_loop.sample("gdn2").items() if name in TOKENS}


def refused(call, name, value, wanted="finite as a float32"):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value).startswith(f"{name} is {value:g}; it must be "), str(error.value)
    assert wanted in str(error.value)


@pytest.mark.parametrize("value", NONE)
def test_numpy(value):
    x, state = sample(), np.zeros((2, 3, 5, 7), np.float32)
    refused(lambda: gdn2.forward(**x, scale=value), "scale", value)
    refused(lambda: gdn2.backward(**x, d_o=x["v"], scale=value), "scale", value)
    refused(lambda: gdn2.step(**x, state=state, scale=value), "scale", value)
    raw = dict(x, decay="bounded", A_log=np.zeros(3, np.float32), lower_bound=value)
    for call in (lambda: gdn2.forward(**raw), lambda: gdn2.backward(**raw, d_o=x["v"]), lambda: gdn2.step(**raw, state=state)):
        refused(call, "lower_bound", value)
    refused(lambda: gdn2.norm(x["q"], eps=value), "eps", value, "finite")
    refused(lambda: gdn2.norm_backward(x["q"], dy=x["q"], eps=value), "eps", value, "finite")
    wide = {name: y.astype(np.float64) for name, y in x.items()}
    if math.isfinite(value):
        assert np.isfinite(gdn2.forward(**wide, scale=value)[0]).all()
    else:
        refused(lambda: gdn2.forward(**wide, scale=value), "scale", value, "finite as a float64")
    assert not state.any()


def test_parameters_of_another_decay():
    x, A_log = sample(), np.zeros(3, np.float32)
    for arguments, sentence in (
        (dict(lower_bound=-5.0), "lower_bound is -5; it must be 0 where decay is not GDN2_DECAY_BOUNDED"),
        (dict(lower_bound=-5.0, decay="softplus", A_log=A_log), "lower_bound is -5; it must be 0"),
        (dict(A_log=A_log), "A_log is given; it must be None where decay is 'log'"),
        (dict(dt_bias=A_log), "dt_bias is given; it must be None where decay is 'log'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            gdn2.forward(**x, **arguments)


@pytest.mark.parametrize("value", NONE)
def test_torch(value):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")
    import gdn2.torch as gt

    x = {name: torch.from_numpy(y) for name, y in sample().items()}
    state, A_log = torch.zeros(2, 3, 5, 7), torch.zeros(3)
    refused(lambda: gt.chunk_gdn2(**x, scale=value), "scale", value)
    refused(lambda: gt.chunk_gdn2(**dict(x, q=x["q"].clone().requires_grad_()), scale=value), "scale", value)
    refused(lambda: gt.fused_recurrent_delta_rule(x["q"], x["k"], x["v"], scale=value), "scale", value)
    refused(lambda: gt.chunk_gla(x["q"], x["k"], x["v"], x["g"], scale=value), "scale", value)
    refused(lambda: gt.step(**x, state=state, scale=value), "scale", value)
    refused(lambda: gt.chunk_gdn2(**x, use_gate_in_kernel=True, A_log=A_log, lower_bound=value), "lower_bound", value)
    refused(lambda: gt.step(**x, state=state, decay="bounded", A_log=A_log, lower_bound=value), "lower_bound", value)
    refused(lambda: gt.norm(x["q"], eps=value), "eps", value, "finite")
    assert not state.any()


@pytest.mark.parametrize("value", NONE)
def test_jax(value):
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    import gdn2.jax

    x = {name: jnp.asarray(y) for name, y in sample().items()}
    token, state = {name: y[:, 0] for name, y in x.items()}, jnp.zeros((2, 3, 5, 7))
    refused(lambda: gdn2.jax.chunk_gdn2(**x, scale=value), "scale", value)
    refused(lambda: gdn2.jax.gdn2_decode_step(**token, state=state, scale=value), "scale", value)


@pytest.mark.parametrize("value", NONE)
def test_atomic_ops(value):
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    from gdn2 import atomic_ops

    x = jnp.zeros((1, 64, 1, 128))
    config = atomic_ops.KernelConfig(bt=64, bc=32, mb=16)
    if not value >= 0:
        with pytest.raises(ValueError, match="clip=.* must be 0 or more"):
            atomic_ops.KernelConfig(clip=value)
    refused(lambda: atomic_ops.gdn2_pallas_forward(x, x, x, x, x, x, value, config=config), "scale", value)
    refused(lambda: atomic_ops.gdn2_pallas_forward_trainable(x, x, x, x, x, x, value, config=config), "scale", value)
    refused(lambda: atomic_ops.gdn2_chunked_wy_reference(x, x, x, x, x, x, value, 64), "scale", value)
    refused(lambda: atomic_ops.gdn2_token_serial_reference(x, x, x, x, x, x, value), "scale", value)
    refused(lambda: atomic_ops.gdn2_chunked_wy_reference(x, x, x, x, x, x, 1.0, 64, wy_eps=value), "wy_eps", value, "in [0, 1)")
