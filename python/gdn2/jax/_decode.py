"""One token: the functions named *_decode_step."""

import jax
import jax.numpy as jnp

from gdn2.jax import _handlers, _inputs, _rule
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
        state: [B, HV, K, V], float32, bfloat16 or float16; computed with as float32. A donated state of the type of the
            new one is updated in place.
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
    beta = _inputs.plain("beta", beta)
    return _step(q, k, v, g, beta, beta, state, reset, scale, qk_l2norm, state_dtype)


def gdn_decode_step(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, state: jax.Array, *,
    reset: Reset = None, scale: float | None = None, qk_l2norm: bool = False, state_dtype: StateType = None,
) -> Step:
    """One token of Gated DeltaNet: g and beta per head, [B, H or HV] or with a last axis of 1. The rest as in
    gdn2_decode_step."""
    beta = _inputs.plain("beta", beta)
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
    beta = _inputs.plain("beta", beta)
    return _step(q, k, v, None, beta, beta, state, reset, scale, qk_l2norm, state_dtype)
# fmt: on


def _step(q, k, v, g, b, w, state, reset, scale, qk_l2norm, state_dtype):
    q = _inputs.plain("q", q)
    if q.ndim not in (3, 4) or (q.ndim == 4 and q.shape[1] != 1):
        raise ValueError(f"q has shape {q.shape}; it must be [B, H, K] or [B, 1, H, K]")
    timed = q.ndim == 4
    named = [(name, x if x is None else _inputs.plain(name, x)) for name, x in zip("qkvgbw", (q, k, v, g, b, w))]
    tokens = [x if timed or x is None else jnp.expand_dims(x, 1) for _, x in named]
    q, k, v = _inputs.queries(*tokens[:3])
    tensors = dict(q=q, k=k, v=v)
    for name, x, check in zip("gbw", tokens[3:], (_inputs.key_gate, _inputs.key_gate, _inputs.value_gate)):
        if x is not None:
            tensors[name] = check(name, x, q, v)
    tensors["h0"] = _inputs.shaped_state("state", state, q.shape[0], q, v)
    if reset is not None:
        reset = _inputs.shaped("reset", _inputs.plain("reset", reset).astype(bool), (), (q.shape[0],))
        tensors["reset"] = jnp.broadcast_to(reset, q.shape[:1])
    options = _rule.Options(_inputs.scale_of(scale, q), bool(qk_l2norm), final=True)
    kept = _inputs.array("state_dtype", jnp.zeros((), state_dtype or _inputs.state_type(q))).dtype
    o, new_state = _advance(options, kept, _handlers.alike(tensors))
    return (o if timed else o[:, 0]), new_state


def _run(options, kept, tensors):
    """(o, h_final); kept: the dtype of h_final. float64 states go through the forward, which takes no others then."""
    if tensors["h0"].dtype == jnp.float64:
        o, h_final = _rule.apply(options, _fresh(tensors))
        return o, h_final.astype(kept)
    results = [_handlers.result(tensors["v"]), _handlers.result(tensors["h0"], dtype=kept)]
    # In place, if the type stays: XLA copies a state that somebody else still needs. With rows of their own for every tensor
    # under vmap, that holds there too.
    aliases = {list(tensors).index("h0"): 1} if tensors["h0"].dtype == kept else None
    return _rule.call("gdn2_step", options, results, tensors, ("o", "h_final"), "broadcast_all", aliases)


def _fresh(tensors):
    """Without reset: where it is true, h0 is zeros."""
    rest = {name: x for name, x in tensors.items() if name != "reset"}
    wide = _inputs.state_type(rest["q"])
    rest["h0"] = rest["h0"].astype(wide)
    if "reset" in tensors:
        rest["h0"] = jnp.where(tensors["reset"].reshape(-1, 1, 1, 1), 0, rest["h0"])
    return rest


_advance = jax.custom_vjp(lambda options, kept, tensors: tuple(_run(options, kept, tensors)), nondiff_argnums=(0, 1))


def _gradients(options, kept, tensors, cotangents):
    """Of a forward of one token."""
    _, pull = jax.vjp(lambda tensors: _rule.apply(options, _fresh(tensors)), tensors)
    return pull((cotangents[0], cotangents[1].astype(_inputs.state_type(tensors["q"]))))


_advance.defvjp(lambda options, kept, tensors: (_advance(options, kept, tensors), tensors), _gradients)
