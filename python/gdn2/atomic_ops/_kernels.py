"""The functions of gdn2_seed.h as JAX calls: float32 arrays, shapes in the letters of that header."""

from typing import NamedTuple

import jax.numpy as jnp

from gdn2._problem import finite
from gdn2.jax import _handlers

RESIDUALS = ("Aqk", "Akk", "A", "h_pre_all", "v_new_all", "w_pseudo", "u", "kg", "qg", "gc_last")


class Limits(NamedTuple):
    """A configuration that KernelConfig would refuse."""

    bt: int
    bc: int
    mb: int
    clip: float
    wy_eps: float

    @classmethod
    def of_chunk(cls, size, wy_eps=0.0, clip=float("inf")):
        """Chunks of this size, split as finely as it allows."""
        halves = size // 2 if size % 32 == 0 else size
        return cls(size, halves, 16 if halves % 16 == 0 else halves, clip, wy_eps)


class Sizes(NamedTuple):
    B: int
    L: int
    H: int
    K: int
    V: int

    @classmethod
    def of_tokens(cls, q, v):
        return cls(*q.shape, v.shape[3])

    @classmethod
    def of_chunks(cls, keys, values):
        """keys [B, H, NC, bt, K], values [B, H, NC, bt, V]"""
        B, H, chunks, bt, K = keys.shape
        return cls(B, chunks * bt, H, K, values.shape[4])


def shapes(sizes: Sizes, bt: int) -> dict:
    B, L, H, K, V = sizes
    chunks = -(-L // bt)
    score, keys, values, states = (bt, bt), (bt, K), (bt, V), (K, V)
    kinds = dict(score=score, keys=keys, values=values, states=states, last=(K,))
    made = {name: (B, H, chunks, *shape) for name, shape in kinds.items()}
    return made | dict(state=(B, H, K, V), key_tokens=(B, L, H, K), value_tokens=(B, L, H, V))


RESIDUAL_KINDS = ("score", "score", "score", "states", "values", "keys", "values", "keys", "keys", "last")
OUTPUTS = ("value_tokens", "state")
GRADIENTS = ("key_tokens", "key_tokens", "value_tokens", "value_tokens", "key_tokens", "key_tokens", "state")


def run(kernel: str, config, sizes: Sizes, scale: float, arguments, results):
    """gdn2_seed_<kernel>(arguments...) with results of the named kinds; config has bt, bc, mb, clip, wy_eps."""
    arguments = {i: jnp.asarray(x, jnp.float32) for i, x in enumerate(arguments)}
    arguments = list(_handlers.alike(arguments).values())
    known = shapes(sizes, config.bt)
    made = [_handlers.result(arguments[0], known[kind]) for kind in results]
    limits = dict(bt=config.bt, bc=config.bc, mb=config.mb, clip=float(config.clip), wy_eps=float(config.wy_eps))
    dims = dict(L=sizes.L, H=sizes.H, K=sizes.K, V=sizes.V)
    return _handlers.call("gdn2_seed", made, arguments, "broadcast_all", kernel=kernel, scale=finite("scale", scale), **limits, **dims)


def no_state(sizes: Sizes):
    return jnp.zeros((sizes.B, sizes.H, sizes.K, sizes.V), jnp.float32)
