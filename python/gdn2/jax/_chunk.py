"""Whole sequences: the functions named chunk_*."""

import jax
import jax.numpy as jnp

from gdn2.jax import _inputs, _rule

PRECISIONS = ("bf16", "fp32")
Result = jax.Array | tuple[jax.Array, jax.Array]


# fmt: off
def chunk_gdn2(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, b: jax.Array, w: jax.Array, *,
    segment_ids: jax.Array | None = None, cu_seqlens: jax.Array | None = None, initial_state: jax.Array | None = None,
    initial_state_segment_id: int | jax.Array | None = None, output_final_state: bool = False, chunk_size: int = 128,
    precision: str = "fp32", scale: float | None = None, qk_l2norm: bool = False, fallback_scan: bool = False,
    is_inference: bool = False, fuse_prologue: bool = False, recompute_states: bool = False, streaming_prefill: bool = False,
    prefill_block_size: int = 4096, stability_guard: bool = False, stability_tau: float = 1000.0, state_fp32_matmul: bool = False,
    mask_lambda_by_doc: bool = False,
) -> Result:
    """Gated DeltaNet-2.

    Args:
        q, k: [B, T, H, K], float32, bfloat16 or float16; K and V from 1 to 256.
        v: [B, T, HV, V]; HV is a multiple of H and value head j reads key head j // (HV // H).
        g: logarithm of the decay, at most 0 in the models: [B, T, H or HV, K], or per head [B, T, H or HV] or with a last axis
            of 1. -inf empties a channel. It is taken as it is; a g above 0 grows the state.
        b: erase gate, shapes as g.
        w: write gate, [B, T, HV, V], or per head.
        segment_ids: [B, T] or [T], integers: where the number changes, the state starts from zero.
        cu_seqlens: [N + 1], integers, with B = 1: sequence n is the tokens cu_seqlens[n] to cu_seqlens[n + 1] - 1, and initial
            and final states have N rows. Tokens after the last offset give 0. Not together with segment_ids.
        initial_state: [B, HV, K, V] (N rows with cu_seqlens), computed with as float32; absent: zeros.
        initial_state_segment_id: a number or [B]; where the first token's segment is another one, initial_state is not used.
        output_final_state: return the state after the last token too.
        scale: factor on q, a number that is known when the function is traced; None: K ** -0.5.
        qk_l2norm: divide q and k by sqrt(sum of squares + 1e-6) first.
        is_inference: forward only; a gradient is refused.
        fuse_prologue: g, b and w are raw: -exp(min(g, 5)), sigmoid(b) and sigmoid(w) are used. Needs qk_l2norm.
        stability_guard: b is raised to 0, g lowered to -1e-6; with is_inference, the Frobenius norm of each head's final state
            is limited to stability_tau.
        chunk_size, precision, fallback_scan, recompute_states, streaming_prefill, prefill_block_size, state_fp32_matmul,
            mask_lambda_by_doc: taken so that calls written for a TPU run; they change nothing here. Arithmetic and states are
            float32. Where a gradient is taken, the state after every 128 tokens is kept for the backward (not in float64: there it
            is computed again); otherwise the forward's memory does not grow with T.

    Returns:
        o [B, T, HV, V] in the dtype of v, or (o, final_state) with final_state [B or N, HV, K, V] float32.

    Raises:
        ValueError, TypeError: a shape, dtype or option that does not fit; the message names it. Offsets that fall or leave the
            sequence are found when the call runs.
    """
    _inputs.positive("prefill_block_size", prefill_block_size)
    if not stability_tau > 0:
        raise ValueError(f"stability_tau is {stability_tau}; it must be above 0")
    q, k, v = _inputs.queries(q, k, v)
    g, b = _inputs.key_gate("g", g, q, v), _inputs.key_gate("b", b, q, v)
    w = _inputs.value_gate("w", w, q, v)
    if fuse_prologue:
        g, b, w = prologue(qk_l2norm, g, b, w)
    if stability_guard:
        g, b = jnp.minimum(g, -1e-6), jnp.maximum(b, 0)
    made = _sequences(q, k, v, g, b, w, segment_ids, cu_seqlens, initial_state, output_final_state, chunk_size, precision, scale,
                      qk_l2norm, is_inference, initial_state_segment_id)
    if not (stability_guard and is_inference and output_final_state):
        return made
    return made[0], limited(made[1], stability_tau)


def chunk_kda(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, *,
    segment_ids: jax.Array | None = None, cu_seqlens: jax.Array | None = None, initial_state: jax.Array | None = None,
    output_final_state: bool = False, chunk_size: int = 128, precision: str = "fp32", scale: float | None = None,
    qk_l2norm: bool = False, fallback_scan: bool = False, is_inference: bool = False, fuse_prologue: bool = False,
    recompute_states: bool = False,
) -> Result:
    """Kimi Delta Attention: g per key channel [B, T, H or HV, K]; beta per head, [B, T, H or HV] or with a last axis of 1, erases
    and writes. The rest as in chunk_gdn2; with fuse_prologue, beta is raw too."""
    q, k, v = _inputs.queries(q, k, v)
    g, beta = _inputs.key_gate("g", g, q, v), _inputs.head_gate("beta", beta, q, v)
    if fuse_prologue:
        g, beta = prologue(qk_l2norm, g, beta)
    return _sequences(q, k, v, g, beta, beta, segment_ids, cu_seqlens, initial_state, output_final_state, chunk_size, precision,
                      scale, qk_l2norm, is_inference)


def chunk_gdn(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, beta: jax.Array, *,
    segment_ids: jax.Array | None = None, cu_seqlens: jax.Array | None = None, initial_state: jax.Array | None = None,
    output_final_state: bool = False, chunk_size: int = 128, precision: str = "fp32", scale: float | None = None,
    qk_l2norm: bool = False, fallback_scan: bool = False, is_inference: bool = False, fuse_prologue: bool = False,
    recompute_states: bool = False,
) -> Result:
    """Gated DeltaNet: g and beta per head, [B, T, H or HV] or with a last axis of 1. The rest as in chunk_kda."""
    q, k, v = _inputs.queries(q, k, v)
    g = _inputs.head_gate("g", g, q, v)
    return chunk_kda(q, k, v, g, beta, segment_ids=segment_ids, cu_seqlens=cu_seqlens, initial_state=initial_state,
                     output_final_state=output_final_state, chunk_size=chunk_size, precision=precision, scale=scale,
                     qk_l2norm=qk_l2norm, is_inference=is_inference, fuse_prologue=fuse_prologue)


def chunk_gla(
    q: jax.Array, k: jax.Array, v: jax.Array, g: jax.Array, *,
    segment_ids: jax.Array | None = None, cu_seqlens: jax.Array | None = None, initial_state: jax.Array | None = None,
    output_final_state: bool = False, chunk_size: int = 128, precision: str = "fp32", scale: float | None = None,
    qk_l2norm: bool = False, fallback_scan: bool = False, is_inference: bool = False, recompute_states: bool = False,
) -> Result:
    """Gated Linear Attention: nothing is erased and values are written as they are; g per key channel or per head. The rest as
    in chunk_gdn2."""
    q, k, v = _inputs.queries(q, k, v)
    g = _inputs.key_gate("g", g, q, v)
    return _sequences(q, k, v, g, None, None, segment_ids, cu_seqlens, initial_state, output_final_state, chunk_size, precision,
                      scale, qk_l2norm, is_inference)


def chunk_delta_rule(
    q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, *,
    segment_ids: jax.Array | None = None, cu_seqlens: jax.Array | None = None, initial_state: jax.Array | None = None,
    output_final_state: bool = False, chunk_size: int = 128, precision: str = "fp32", scale: float | None = None,
    qk_l2norm: bool = False, fallback_scan: bool = False, is_inference: bool = False, recompute_states: bool = False,
) -> Result:
    """DeltaNet: no decay; beta per head, [B, T, H or HV] or with a last axis of 1. The rest as in chunk_gdn2."""
    q, k, v = _inputs.queries(q, k, v)
    beta = _inputs.head_gate("beta", beta, q, v)
    return _sequences(q, k, v, None, beta, beta, segment_ids, cu_seqlens, initial_state, output_final_state, chunk_size,
                      precision, scale, qk_l2norm, is_inference)
# fmt: on


def prologue(qk_l2norm, g, *gates):
    """Gates from raw input."""
    if not qk_l2norm:
        raise ValueError("fuse_prologue is True; it needs qk_l2norm=True")
    return -jnp.exp(jnp.minimum(g, 5.0)), *map(jax.nn.sigmoid, gates)


def limited(state, tau):
    """Each head's state [..., K, V] with a Frobenius norm of at most tau."""
    norm = jnp.sqrt(jnp.sum(jnp.square(state.astype(jnp.float32)), axis=(-2, -1), keepdims=True))
    return (state * jnp.minimum(1.0, tau / jnp.maximum(norm, 1e-30))).astype(state.dtype)


def _sequences(q, k, v, g, b, w, segment_ids, cu_seqlens, initial_state, output_final_state, chunk_size, precision, scale,
               qk_l2norm, is_inference, initial_state_segment_id=None):  # fmt: skip
    _inputs.positive("chunk_size", chunk_size)
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {precision!r}; it must be one of {PRECISIONS}")
    tensors = dict(q=q, k=k, v=v)
    sequences = q.shape[0]
    if cu_seqlens is not None:
        tensors["cu_seqlens"], sequences = _offsets(cu_seqlens, segment_ids, q)
    if segment_ids is not None:
        g = _inputs.restarted(g, _starts(segment_ids, initial_state_segment_id, q), q)
    elif initial_state_segment_id is not None:
        raise ValueError("initial_state_segment_id is given; it needs segment_ids")
    tensors |= {name: x for name, x in (("g", g), ("b", b)) if x is not None}
    if w is not None:
        tensors["w"] = _inputs.value_gate("w", w, q, v)
    if initial_state is not None:
        tensors["h0"] = _inputs.state("initial_state", initial_state, sequences, q, v)
    options = _rule.Options(_inputs.scale_of(scale, q), bool(qk_l2norm), bool(output_final_state), bool(is_inference))
    made = _rule.apply(options, tensors)
    return made if output_final_state else made[0]


def _offsets(cu_seqlens, segment_ids, q):
    """The offsets as an array, and the number of sequences."""
    if segment_ids is not None:
        raise ValueError("cu_seqlens and segment_ids are both given; one of them must be None")
    offsets = _inputs.integers("cu_seqlens", cu_seqlens)
    if offsets.ndim != 1 or offsets.shape[0] < 1:
        raise ValueError(f"cu_seqlens has shape {offsets.shape}; it must have one axis, of at least one offset")
    if q.shape[0] != 1:
        raise ValueError(f"q has a batch of {q.shape[0]}; with cu_seqlens it must be 1; segment_ids serves every row")
    if offsets.dtype not in (jnp.int32, jnp.int64):
        offsets = offsets.astype(jnp.int32)
    return offsets, offsets.shape[0] - 1


def _starts(segment_ids, before, q):
    """[B, T]: tokens whose segment is not that of the token before them."""
    B, T = q.shape[:2]
    ids = _inputs.shaped("segment_ids", _inputs.integers("segment_ids", segment_ids), (B, T), (T,))
    ids = jnp.broadcast_to(ids, (B, T))
    if before is None:
        first = ids[:, :1]
    else:
        before = _inputs.shaped("initial_state_segment_id", _inputs.integers("initial_state_segment_id", before), (), (B,))
        first = jnp.broadcast_to(before.reshape(-1, 1), (B, 1))
    return ids != jnp.concatenate([first, ids[:, :-1]], axis=1)[:, :T]
