"""Turns the arguments of the public functions into the tensors of the rule, and says what is wrong with them."""

import jax.numpy as jnp

from gdn2._problem import finite

FLOATS = ("float32", "bfloat16", "float16", "float64")


def plain(name, x):
    """x as an array."""
    try:
        return jnp.asarray(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be an array") from None


def array(name, x):
    """x as a floating-point array."""
    x = plain(name, x)
    if x.dtype.name not in FLOATS:
        raise TypeError(f"{name} has dtype {x.dtype.name}; it must be one of {', '.join(FLOATS)}")
    return x


def shaped(name, x, *shapes):
    """x, if it has one of the shapes."""
    if x.shape not in shapes:
        raise ValueError(f"{name} has shape {x.shape}; it must be {' or '.join(map(str, dict.fromkeys(shapes)))}")
    return x


def integers(name, x):
    x = plain(name, x)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"{name} has dtype {x.dtype.name}; it must be an integer type")
    return x


def queries(q, k, v):
    """q, k [B, T, H, K] and v [B, T, HV, V] that fit each other."""
    q, k, v = (array(name, x) for name, x in (("q", q), ("k", k), ("v", v)))
    for name, x in (("q", q), ("v", v)):
        if x.ndim != 4:
            raise ValueError(f"{name} has shape {x.shape}; it must have 4 axes: batch, time, heads, channels")
    shaped("k", k, q.shape)
    B, T, H, _ = q.shape
    if v.shape[:2] != (B, T):
        raise ValueError(f"v has shape {v.shape}; its batch and time must be those of q, {(B, T)}")
    if v.shape[2] != H and (H == 0 or v.shape[2] == 0 or v.shape[2] % H):
        raise ValueError(f"v has {v.shape[2]} heads; it must have a multiple of the {H} heads of q")
    return q, k, v


def key_gate(name, x, q, v):
    """g or b: [B, T, H or HV, K] or, one number per head, [B, T, H or HV] and the same with a last axis of 1."""
    return _gate(name, x, q.shape[:2], dict.fromkeys((q.shape[2], v.shape[2])), q.shape[3])


def value_gate(name, x, q, v):
    """w: [B, T, HV, V] or, one number per head, [B, T, HV] or [B, T, H], and the same with a last axis of 1."""
    H, HV = q.shape[2], v.shape[2]
    x = _gate(name, x, q.shape[:2], dict.fromkeys((HV, H)), v.shape[3])
    if x.shape[2] == HV:
        return x
    if x.ndim == 4:
        raise ValueError(f"{name} has shape {x.shape}; it must have the {HV} heads of v")
    return jnp.repeat(x, HV // H, axis=2)


def head_gate(name, x, q, v):
    """g or beta as one number per head: [B, T, H or HV] or the same with a last axis of 1; without that axis."""
    x = array(name, x)
    shaped(name, x, *[(*q.shape[:2], n, *last) for n in (q.shape[2], v.shape[2]) for last in ((), (1,))])
    return x.reshape(x.shape[:3])


def _gate(name, x, lead, heads, channels):
    x = array(name, x)
    shapes = [(*lead, n, *last) for n in heads for last in ((channels,), (1,), ())]
    shaped(name, x, *shapes)
    return x[..., 0] if x.ndim == 4 and x.shape[3] == 1 else x


def state_type(q):
    """States are float32, and float64 where everything is."""
    return jnp.float64 if q.dtype == jnp.float64 else jnp.float32


def shaped_state(name, x, sequences, q, v):
    return shaped(name, array(name, x), (sequences, v.shape[2], q.shape[3], v.shape[3]))


def state(name, x, sequences, q, v):
    return shaped_state(name, x, sequences, q, v).astype(state_type(q))


def restarted(g, starts, q):
    """g with a decay of -inf, which is exact and takes everything away, where a token starts anew. starts [B, T]."""
    if g is None:
        return jnp.broadcast_to(jnp.where(starts, -jnp.inf, 0.0).astype(state_type(q))[..., None], q.shape[:3])
    return jnp.where(starts.reshape(starts.shape + (1,) * (g.ndim - 2)), jnp.asarray(-jnp.inf, g.dtype), g)


def positive(name, value):
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} is {value!r}; it must be a positive integer")


def scale_of(scale, q):
    """A number: it is part of the compiled call."""
    return q.shape[3] ** -0.5 if scale is None else finite("scale", scale, q.dtype == jnp.float64)
