"""The two references: token by token, and by chunks. NOTE their order of arguments: q, k, v, g, b, w."""

import functools

import jax
import jax.numpy as jnp

from gdn2.atomic_ops import _kernels
from gdn2.jax import _handlers, _rule


def gdn2_token_serial_reference(q, k, v, g, b, w, scale, h0=None):
    """The recurrence in float32, one token after another.

    Args:
        q, k, g, b: [batch, seq_len, heads, d_head]; v, w: [batch, seq_len, heads, d_value]; g is the logarithm of the decay.
        scale: factor on q.
        h0: [batch, heads, d_head, d_value]; None: zeros.

    Returns:
        o [batch, seq_len, heads, d_value] in the dtype of q; h_final [batch, heads, d_head, d_value] float32.
    """
    narrow = q.dtype
    if isinstance(scale, jax.core.Tracer) or narrow != jnp.float32:
        q, scale = q * scale, 1.0  # rounded to the dtype of q
    sizes = _kernels.Sizes.of_tokens(q, v)
    o, h_final = _token_serial(float(scale), *_inputs(q, k, v, w, _erase(b, k), g, h0, sizes))
    return o.astype(narrow), h_final


def gdn2_chunked_wy_reference(q, k, v, g, b, w, scale, chunk_size, h0=None, wy_eps: float = 0.0):
    """The same by chunks, with the pair clip and, for wy_eps above 0, the damping of the pipeline; the state stays within +-1e4.

    Its gradient: without damping that of the exact rule, which is the same but for pairs that have decayed below e^-20; with
    damping that of the pipeline, its own clips left out. Where the state was clipped, neither knows of it. Arguments as
    gdn2_token_serial_reference; seq_len must be divisible by chunk_size, else ValueError. o is float32.
    """
    if q.shape[1] % chunk_size != 0:
        raise ValueError(f"q has seq_len={q.shape[1]}: it must be divisible by chunk_size={chunk_size}")
    if not 0.0 <= wy_eps < 1.0:
        raise ValueError(f"wy_eps is {wy_eps:g}; it must be in [0, 1)")
    if isinstance(scale, jax.core.Tracer):
        q, scale = q * scale, 1.0
    sizes = _kernels.Sizes.of_tokens(q, v)
    inputs = _inputs(q, k, v, w, jnp.asarray(b, jnp.float32), g, h0, sizes)
    return _chunked_wy(float(scale), int(chunk_size), float(wy_eps), *inputs)


def _wy_inverse(Akk, eps: float = 0.0):
    """(I + (1 - eps) Akk)^-1 of strictly lower triangular Akk [..., C, C]."""
    eye = jnp.broadcast_to(jnp.eye(Akk.shape[-1], dtype=Akk.dtype), Akk.shape)
    return jax.scipy.linalg.solve_triangular(eye + (1.0 - eps) * Akk, eye, lower=True, unit_diagonal=True)


def _erase(b, k):
    """b as float32 such that b k is the product rounded to the dtype of its factors."""
    if b.dtype == k.dtype == jnp.float32:
        return b
    product, wide = (b * k).astype(jnp.float32), k.astype(jnp.float32)
    return jnp.where(wide == 0, 0.0, product / jnp.where(wide == 0, 1.0, wide))


def _inputs(q, k, v, w, b, g, h0, sizes):
    """q, k, v, w, b, g, h0 as float32; the product w v is rounded to the dtype of its factors."""
    if not v.dtype == w.dtype == jnp.float32:
        v, w = w * v, jnp.ones(v.shape, jnp.float32)
    h0 = _kernels.no_state(sizes) if h0 is None else h0
    arrays = {i: jnp.asarray(x, jnp.float32) for i, x in enumerate((q, k, v, w, b, g, h0))}
    return _handlers.alike(arrays).values()


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _token_serial(scale, *inputs):
    limits = _kernels.Limits.of_chunk(1)
    return tuple(_kernels.run("token_serial", limits, _sizes(inputs), scale, inputs, _kernels.OUTPUTS))


def _exact_gradients(scale, inputs, cotangents):
    names = ("q", "k", "v", "w", "b", "g", "h0")
    options = _rule.Options(scale, final=True)
    _, pull = jax.vjp(lambda tensors: _rule.apply(options, tensors), dict(zip(names, inputs)))
    gradients = pull(tuple(cotangents))[0]
    return tuple(gradients[name] for name in names)


_token_serial.defvjp(lambda scale, *inputs: (_token_serial(scale, *inputs), inputs), _exact_gradients)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _chunked_wy(scale, chunk_size, wy_eps, *inputs):
    limits = _kernels.Limits.of_chunk(chunk_size, wy_eps)
    return tuple(_kernels.run("chunked_wy", limits, _sizes(inputs), scale, inputs, _kernels.OUTPUTS))


def _chunked_wy_gradients(scale, chunk_size, wy_eps, inputs, cotangents):
    if wy_eps == 0:
        return _exact_gradients(scale, inputs, cotangents)
    # Gradients are linear in the cotangents: made small, they stay away from the clip at 1e4 that ends the pipeline. Powers of
    # two change no bits.
    most = jnp.maximum(jnp.max(jnp.abs(cotangents[0]), initial=0.0), jnp.max(jnp.abs(cotangents[1]), initial=0.0))
    exponent = jnp.where((most > 0) & jnp.isfinite(most), jnp.floor(jnp.log2(jnp.where(most > 0, most, 1.0))), 0.0) + 40
    small = [x * jnp.exp2(-exponent) for x in cotangents]
    limits = _kernels.Limits.of_chunk(chunk_size, wy_eps)
    made = _kernels.run("backward", limits, _sizes(inputs), scale, (*inputs, *small), _kernels.GRADIENTS)
    return tuple(x * jnp.exp2(exponent) for x in made)


_chunked_wy.defvjp(lambda *arguments: (_chunked_wy(*arguments), arguments[3:]), _chunked_wy_gradients)


def _sizes(inputs):
    return _kernels.Sizes.of_tokens(inputs[0], inputs[2])
