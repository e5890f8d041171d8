"""One token: the functions named *_decode_step."""

import jax
import jax.numpy as jnp

from gdn2.jax import _inputs, _rule
from gdn2.jax._chunk import limited

Step = tuple[jax.Array, jax.Array]
Reset = bool | jax.Array | None
StateType = str | jnp.dtype | None


# fmt: off
def gdn2_decode_step(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, b: jax.Array, w: jax.Array, state: jax.Array, *,
    reset: Reset = None, scale: float | None = None, qk_l2norm: bool = False, state_dtype: StateType = None,
    stability_guard: bool = False, stability_tau: float = 1000.0,
) -> Step:
    """One token of Gated DeltaNet-2.

    Args:
        q, k: [B, H, K] or [B, 1, H, K]; float32, bfloat16 or float16.
        v: [B, HV, V] or [B, 1, HV, V].
        g, b: [B, H or HV, K], or per head [B, H or HV] or with a last axis of 1; with the axis of time where q has it.
        w: [B, HV, V], or per head.
        state: [B, HV, K, V]; computed with as float32.
        reset: a truth value or [B] of them: where true, the state starts from zero.
        scale: factor on q, a number; None: K ** -0.5.
        qk_l2norm: divide q and k by sqrt(sum of squares + 1e-6) first.
        state_dtype: of the new state; None: float32.
        stability_guard: b is raised to 0, g lowered to -1e-6, and the Frobenius norm of each head's new state is limited to
            stability_tau.

    Returns:
        (o, new_state): [B, HV, V] in the dtype of v, with the axis of time where q has it, and [B, HV, K, V].

    Raises:
        ValueError, TypeError: a shape, dtype or option that does not fit; the message names it.
    """
    if not stability_tau > 0:
        raise ValueError(f"stability_tau is {stability_tau}; it must be above 0")
    if stability_guard:
        g, b = jnp.minimum(g, -1e-6), jnp.maximum(b, 0)
    o, new_state = _step(q, k, v, g, b, w, state, reset, scale, qk_l2norm, state_dtype)
    return o, limited(new_state, stability_tau) if stability_guard else new_state


def kda_decode_step(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array, *,
    reset: Reset = None, scale: float | None = None, qk_l2norm: bool = False, state_dtype: StateType = None,
) -> Step:
    """One token of Kimi Delta Attention: g per key channel; beta per head, [B, H or HV] or with a last axis of 1. The rest as in
    gdn2_decode_step."""
    return _step(q, k, v, g, beta, beta, state, reset, scale, qk_l2norm, state_dtype)


def gdn_decode_step(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array, *,
    reset: Reset = None, scale: float | None = None, qk_l2norm: bool = False, state_dtype: StateType = None,
) -> Step:
    """One token of Gated DeltaNet: g and beta per head, [B, H or HV] or with a last axis of 1. The rest as in
    gdn2_decode_step."""
    return _step(q, k, v, g, beta, beta, state, reset, scale, qk_l2norm, state_dtype)


def gla_decode_step(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, state: jax.Array, *,
    reset: Reset = None, scale: float | None = None, qk_l2norm: bool = False, state_dtype: StateType = None,
) -> Step:
    """One token of Gated Linear Attention: g per key channel or per head. The rest as in gdn2_decode_step."""
    return _step(q, k, v, g, None, None, state, reset, scale, qk_l2norm, state_dtype)


def delta_rule_decode_step(
    q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, state: jax.Array, *,
    reset: Reset = None, scale: float | None = None, qk_l2norm: bool = False, state_dtype: StateType = None,
) -> Step:
    """One token of DeltaNet: beta per head, [B, H or HV] or with a last axis of 1. The rest as in gdn2_decode_step."""
    return _step(q, k, v, None, beta, beta, state, reset, scale, qk_l2norm, state_dtype)
# fmt: on


def _step(q, k, v, g, b, w, state, reset, scale, qk_l2norm, state_dtype):
    q = jnp.asarray(q)
    if q.ndim not in (3, 4) or (q.ndim == 4 and q.shape[1] != 1):
        raise ValueError(f"q has shape {q.shape}; it must be [B, H, K] or [B, 1, H, K]")
    timed = q.ndim == 4
    tokens = [x if timed or x is None else jnp.expand_dims(jnp.asarray(x), 1) for x in (q, k, v, g, b, w)]
    q, k, v = _inputs.queries(*tokens[:3])
    tensors = dict(q=q, k=k, v=v)
    for name, x, check in zip("gbw", tokens[3:], (_inputs.key_gate, _inputs.key_gate, _inputs.value_gate)):
        if x is not None:
            tensors[name] = check(name, x, q, v)
    tensors["h0"] = _inputs.state("state", jnp.asarray(state), q.shape[0], q, v)
    if reset is not None:
        reset = _inputs.shaped("reset", jnp.asarray(reset, bool), (), (q.shape[0],))
        tensors["h0"] = jnp.where(reset.reshape(-1, 1, 1, 1), 0, tensors["h0"])
    options = _rule.Options(_inputs.scale_of(scale, q), bool(qk_l2norm), final=True)
    o, new_state = _rule.apply(options, tensors)
    return (o if timed else o[:, 0]), new_state.astype(state_dtype or _inputs.state_type(q))
