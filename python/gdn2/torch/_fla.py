"""The ten functions of flash-linear-attention 0.6 over the operators of _ops.py."""

import warnings

import torch
from torch import Tensor

from gdn2._problem import Options
from gdn2.torch._ops import rule, rule_with_states, state_type
from gdn2.torch._tensors import allow, require

Result = tuple[Tensor, Tensor | None]
ResultWithStates = tuple[Tensor, Tensor | None, Tensor]
_CHUNKS = (16, 32, 64)


def _refuse(**unsupported):
    """What has no meaning here or is not there must be left at its default."""
    for name, value in unsupported.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{name} is not supported by gdn2; leave it out")


def _layout(state_v_first, transpose_state_layout):
    """state_v_first, also under its old name."""
    if transpose_state_layout is None:
        return state_v_first
    if state_v_first:
        raise ValueError("state_v_first and transpose_state_layout are the same; give one of them")
    warnings.warn("transpose_state_layout is called state_v_first now", DeprecationWarning, stacklevel=3)
    return transpose_state_layout


def _chunk(chunk_size):
    """Results do not depend on it."""
    if chunk_size not in _CHUNKS:
        raise ValueError(f"chunk_size is {chunk_size}; it must be one of {_CHUNKS}")


def _graph(cu_seqlens, max_num_seqs, states):
    """The shapes of a captured call, which this one need not have."""
    if states:
        raise NotImplementedError("return_intermediate_states with use_graph is not supported by gdn2; leave one of them out")
    allow(cu_seqlens=cu_seqlens)
    if cu_seqlens is not None and max_num_seqs is not None and cu_seqlens.shape[0] - 1 != max_num_seqs:
        raise ValueError(f"cu_seqlens has {cu_seqlens.shape[0] - 1} sequences; it must have max_num_seqs = {max_num_seqs}")


def _per_head(name, x):
    if x.dim() != 3:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be [B, T, HV]")
    return x


def _decay(use_gate_in_kernel, g, A_log, dt_bias, lower_bound, heads, channels, wide):
    """(library's decay, A_log, dt_bias, lower_bound): flat parameters of fla in the library's shapes, of the element type wide."""
    if not use_gate_in_kernel:
        return 0, None, None, 0.0
    if g is None:
        raise ValueError("g is None; with use_gate_in_kernel it must be the raw input of the decay")
    if A_log is None:
        if lower_bound is None:
            raise ValueError("A_log is None; with use_gate_in_kernel and without lower_bound it must be given")
        A_log = torch.zeros(heads)
    A_log = A_log.reshape(-1).to(wide)
    if dt_bias is not None:
        per_channel = channels > 1 and dt_bias.numel() == heads * channels
        dt_bias = dt_bias.to(wide).reshape((heads, channels) if per_channel else -1)
    return (1, A_log, dt_bias, 0.0) if lower_bound is None else (2, A_log, dt_bias, float(lower_bound))


def _beta(beta, use_sigmoid, allow_neg_eigval, wide):
    """(beta, the library's gate). 2 sigmoid is taken here, in the type wide: the library has it for the erase gate alone."""
    if allow_neg_eigval and not use_sigmoid:
        raise ValueError("allow_neg_eigval is given; it must come with use_beta_sigmoid_in_kernel")
    if not use_sigmoid:
        return beta, 0
    return (2 * beta.to(wide).sigmoid(), 0) if allow_neg_eigval else (beta, 1)


def _intermediate(wanted, disable_recompute, chunk_size):
    """The tokens between the states to return; 0 for none. The conditions are those of flash-linear-attention."""
    if not wanted:
        return 0
    if not torch.is_inference_mode_enabled():
        raise RuntimeError("return_intermediate_states is True; without gradients: it must be under torch.inference_mode()")
    if disable_recompute:
        raise ValueError("disable_recompute is True; it must be False with return_intermediate_states")
    return chunk_size


def _before_chunks(after, h0, cu, T, every, like):
    """[B, NT, HV, K, V] in the type of like: the state before each chunk of each sequence, of those after every so many tokens.

    after: [B, T // every, HV, K, V], where the library puts those of a packed sequence.
    """
    offsets = [0, T] if cu is None else cu.tolist()
    counts = [-(-(b - a) // every) for a, b in zip(offsets, offsets[1:])]
    h, at = like.new_zeros((after.shape[0], sum(counts), *after.shape[2:])), 0
    for n, (start, count) in enumerate(zip(offsets, counts)):
        if count and h0 is not None:
            h[:, at] = h0 if cu is None else h0[n]
        first = start // every
        h[:, at + 1 : at + count] = after[:, first : first + max(0, count - 1)]
        at += count
    return h


def _call(
    q, k, v, g=None, b=None, w=None, beta=None, *, options, h0, final_state, v_first, cu, A_log=None, dt_bias=None, every=0
) -> Result | ResultWithStates:
    if h0 is not None:
        if h0.dtype != state_type(q):
            h0 = h0.to(state_type(q))
        if v_first:
            h0 = h0.transpose(-1, -2)
    arguments = (q, k, v, g, b, w, beta, h0, cu, A_log, dt_bias, *options, final_state, v_first)
    o, h, *after = rule_with_states(*arguments, every=every) if every else rule(*arguments)
    last = None if not final_state else h.transpose(2, 3) if v_first else h
    if not every:
        return o, last
    states = _before_chunks(*after, h0, cu, q.shape[1], every, k)
    return o, last, states.transpose(3, 4).contiguous() if v_first else states


def _delta(q, k, v, g, beta, scale, l2norm, gate, sigmoid, negative, **rest) -> Result:
    """A rule with beta; gate: (use_gate_in_kernel, A_log, dt_bias, lower_bound)."""
    require(q=q, k=k, v=v, beta=beta)
    allow(g=g, initial_state=rest["h0"], cu_seqlens=rest["cu"], A_log=gate[1], dt_bias=gate[2])
    heads, channels, wide = v.shape[2], g.shape[3] if g is not None and g.dim() == 4 else 1, state_type(q)
    decay, A_log, dt_bias, bound = _decay(gate[0], g, *gate[1:], heads, channels, wide)
    beta, kind = _beta(_per_head("beta", beta), sigmoid, negative, wide)
    options = Options(scale, 0, decay, bound, kind, kind, l2norm)
    return _call(q, k, v, g, beta=beta, options=options, A_log=A_log, dt_bias=dt_bias, **rest)


def chunk_gdn2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cp_context: object | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
) -> Result | ResultWithStates:
    """Gated DeltaNet-2: S <- (I - k (b k)^T) diag(exp(g)) S + k (w v)^T, o = S^T (scale q).

    Args:
        q, k: [B, T, H, K].
        v, w: [B, T, HV, V]; w is the write gate.
        g: natural logarithm of the decay, or raw with use_gate_in_kernel, [B, T, HV, K].
        b: erase gate [B, T, HV, K].
        scale: None: K^-1/2.
        initial_state: [N, HV, K, V], or [N, HV, V, K] with state_v_first; N = B, or one per sequence of cu_seqlens.
        use_qk_l2norm_in_kernel: q and k are divided by their norms.
        use_gate_in_kernel: the decay is -exp(A_log) softplus(g + dt_bias), or with lower_bound
            lower_bound sigmoid(exp(A_log) (g + dt_bias)); A_log [HV] (with lower_bound may be None: 0), dt_bias [HV * K] or
            [HV].
        cu_seqlens: int32 or int64 [N + 1], with B = 1.
        cu_seqlens_cpu, safe_gate, disable_recompute, chunk_size: without effect: gates are never clamped, and results do not
            depend on how the work is cut.
        return_intermediate_states: under torch.inference_mode(), without disable_recompute: also the states before every
            chunk_size tokens of each sequence.
        cp_context: not supported.

    Returns:
        (o, final_state): o [B, T, HV, V] in the type of q, the state in float32 (float64 in a float64 call), or None.
        With return_intermediate_states a third, [B, NT, HV, K, V] (or [B, NT, HV, V, K]) in the type of k, NT the number of
        chunks, ceil(T / chunk_size), or their sum over the sequences of cu_seqlens, one behind the other.

    Raises:
        ValueError, TypeError: an argument is not what it must be; the message names it. Unknown keywords are TypeErrors.
        NotImplementedError: an argument that gdn2 does not support is used.
    """
    _refuse(cp_context=cp_context)
    _chunk(chunk_size)
    v_first = _layout(state_v_first, transpose_state_layout)
    require(q=q, k=k, v=v)
    allow(g=g, b=b, w=w, initial_state=initial_state, cu_seqlens=cu_seqlens, A_log=A_log, dt_bias=dt_bias)
    parameters = (A_log, dt_bias, lower_bound)
    decay, A_log, dt_bias, bound = _decay(use_gate_in_kernel, g, *parameters, v.shape[2], q.shape[3], state_type(q))
    return _call(
        *(q, k, v, g, b, w),
        options=Options(scale, 0, decay, bound, 0, 0, use_qk_l2norm_in_kernel),
        every=_intermediate(return_intermediate_states, disable_recompute, chunk_size),
        **dict(h0=initial_state, final_state=output_final_state, v_first=v_first, cu=cu_seqlens, A_log=A_log, dt_bias=dt_bias),
    )


def fused_recurrent_gdn2(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    b: Tensor,
    w: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> Result:
    """As chunk_gdn2, with its arguments in another order; the same code and the same bits."""
    return chunk_gdn2(
        *(q, k, v, g, b, w, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, use_gate_in_kernel),
        cu_seqlens=cu_seqlens,
        lower_bound=lower_bound,
        state_v_first=_layout(state_v_first, transpose_state_layout),
        A_log=A_log,
        dt_bias=dt_bias,
    )


def chunk_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    disable_recompute: bool = False,
    return_intermediate_states: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    cp_context: object | None = None,
    use_graph: bool = False,
    max_num_seqs: int | None = None,
    *,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
) -> Result | ResultWithStates:
    """Kimi Delta Attention: chunk_gdn2 with b = w = beta, [B, T, HV].

    Args:
        use_beta_sigmoid_in_kernel: beta is raw; its sigmoid is taken, twice the sigmoid with allow_neg_eigval.
        use_graph: without effect, there is no graph: a later call sees what cu_seqlens holds then. Not together with
            return_intermediate_states.
        max_num_seqs: with use_graph, the number of sequences that cu_seqlens must have, empty ones at its end included.
        Everything else: as chunk_gdn2.
    """
    _refuse(cp_context=cp_context)
    _chunk(chunk_size)
    if use_graph:
        _graph(cu_seqlens, max_num_seqs, return_intermediate_states)
    v_first = _layout(state_v_first, transpose_state_layout)
    gate = (use_gate_in_kernel, A_log, dt_bias, lower_bound)
    return _delta(
        *(q, k, v, g, beta, scale, use_qk_l2norm_in_kernel, gate, use_beta_sigmoid_in_kernel, allow_neg_eigval),
        **dict(h0=initial_state, final_state=output_final_state, v_first=v_first, cu=cu_seqlens),
        every=_intermediate(return_intermediate_states, disable_recompute, chunk_size),
    )


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> Result:
    """As chunk_kda, with its arguments in another order; the same code and the same bits."""
    v_first = _layout(state_v_first, transpose_state_layout)
    gate = (use_gate_in_kernel, A_log, dt_bias, lower_bound)
    return _delta(
        *(q, k, v, g, beta, scale, use_qk_l2norm_in_kernel, gate, use_beta_sigmoid_in_kernel, allow_neg_eigval),
        **dict(h0=initial_state, final_state=output_final_state, v_first=v_first, cu=cu_seqlens),
    )
