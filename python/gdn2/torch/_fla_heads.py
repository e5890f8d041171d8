"""The functions of flash-linear-attention for Gated DeltaNet, DeltaNet and GLA."""

import torch
from torch import Tensor

from gdn2._problem import Options, axes, expect
from gdn2.torch._fla import Result, _call, _chunk, _delta, _layout, _refuse
from gdn2.torch._ops import state_type
from gdn2.torch._tensors import allow, require


def _sum_of_decays(q, g, gk):
    """The logarithms of two decays, [B, T, HV] and [B, T, HV, K], either of which may be None, in the type of a state."""
    if g is None or gk is None:
        return gk if g is None else g
    return gk.to(state_type(q)) + g.to(state_type(q))[..., None]


def _channels_as_heads(q, v, g, gv, beta, h0, v_first):
    """(v, g, beta, h0) of HV V heads with one value channel each.

    The columns of a state do not see each other: where each has a decay of its own, each is a head of its own, whose decay is g + gv.
    """
    K, (HV, V) = axes("q", q, "B T H K")[3], axes("v", v, "B T HV V")[2:]
    expect("gv", gv, v.shape)
    if g is not None:
        g = g[:, :, :, None].to(state_type(q))
        gv = g + (gv if g.dim() == 4 else gv[..., None])
    if beta is not None:
        beta = beta[..., None].expand(*beta.shape, V).flatten(2)
    if h0 is not None:
        expect("initial_state", h0, (h0.shape[0], HV, *((V, K) if v_first else (K, V))))
        h0 = (h0 if v_first else h0.transpose(2, 3)).flatten(1, 2)[..., None]
    return v.flatten(2)[..., None], gv.flatten(2, 3), beta, h0


def _heads_as_channels(o, h, v, v_first):
    """Output and final state of _channels_as_heads with the heads of v."""
    if h is not None:
        h = h.squeeze(3).unflatten(1, v.shape[2:])
        h = h if v_first else h.transpose(2, 3).contiguous()
    return o.reshape(v.shape), h


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    cp_context: object | None = None,
    *,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    chunk_size: int = 64,
    transpose_state_layout: bool | None = None,
) -> Result:
    """Gated DeltaNet: S <- (I - beta k k^T) exp(g) S + beta k v^T, o = S^T (scale q).

    Args:
        g: natural logarithm of the decay, or raw with use_gate_in_kernel, [B, T, HV]; A_log, dt_bias [HV].
        beta: [B, T, HV], raw with use_beta_sigmoid_in_kernel.
        cu_seqlens_cpu, chunk_indices, chunk_size: without effect.
        Everything else: as chunk_kda.
    """
    _refuse(cp_context=cp_context)
    _chunk(chunk_size)
    require(g=g)
    if g.dim() != 3:
        raise ValueError(f"g has shape {tuple(g.shape)}; it must be [B, T, HV]")
    v_first = _layout(state_v_first, transpose_state_layout)
    return _delta(
        *(q, k, v, g, beta, scale, use_qk_l2norm_in_kernel, (use_gate_in_kernel, A_log, dt_bias, None)),
        *(use_beta_sigmoid_in_kernel, allow_neg_eigval),
        **dict(h0=initial_state, final_state=output_final_state, v_first=v_first, cu=cu_seqlens),
    )


def fused_recurrent_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> Result:
    """As chunk_gated_delta_rule, and with a decay per key channel.

    Args:
        g: [B, T, HV], None: 0.
        gk: logarithm of a further decay, [B, T, HV, K].
        gv: logarithm of a decay per value channel, [B, T, HV, V]: slow, since each channel is computed as a head of its own.
            With gk B T HV V K numbers are made.
        beta: None: 1.
    """
    require(q=q, v=v)
    allow(g=g, gk=gk, gv=gv, beta=beta, initial_state=initial_state)
    if g is not None and g.dim() != 3:
        raise ValueError(f"g has shape {tuple(g.shape)}; it must be [B, T, HV]")
    if use_gate_in_kernel and not (gk is None and gv is None):
        name = "gv" if gk is None else "gk"
        raise NotImplementedError(f"{name} together with use_gate_in_kernel is not supported by gdn2; leave one of them out")
    g = _sum_of_decays(q, g, gk)
    if beta is None:
        beta = torch.ones(v.shape[:3], dtype=v.dtype)
    v_first, values, h0 = _layout(state_v_first, transpose_state_layout), v, initial_state
    if gv is not None:
        v, g, beta, h0 = _channels_as_heads(q, v, g, gv, beta, h0, v_first)
    o, h = _delta(
        *(q, k, v, g, beta, scale, use_qk_l2norm_in_kernel, (use_gate_in_kernel, A_log, dt_bias, None)),
        *(use_beta_sigmoid_in_kernel, allow_neg_eigval),
        **dict(h0=h0, final_state=output_final_state, v_first=v_first and gv is None, cu=cu_seqlens),
    )
    return (o, h) if gv is None else _heads_as_channels(o, h, values, v_first)


def chunk_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
    *,
    chunk_size: int = 64,
) -> Result:
    """DeltaNet: S <- (I - beta k k^T) S + beta k v^T, o = S^T (scale q). Arguments as chunk_gated_delta_rule; float32 is fine."""
    _chunk(chunk_size)
    require(beta=beta)
    return fused_recurrent_delta_rule(
        q, k, v, beta, scale, initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens
    )


def fused_recurrent_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Result:
    """As chunk_delta_rule. beta: None: 1."""
    require(v=v)
    if beta is None:
        beta = torch.ones(v.shape[:3], dtype=v.dtype)
    return _delta(
        *(q, k, v, None, beta, scale, use_qk_l2norm_in_kernel, (False, None, None, None), False, False),
        **dict(h0=initial_state, final_state=output_final_state, v_first=False, cu=cu_seqlens),
    )


def chunk_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    cu_seqlens_cpu: Tensor | None = None,
) -> Result:
    """Gated Linear Attention: S <- diag(exp(g)) S + k v^T, o = S^T (scale q).

    g [B, T, H, K]; other arguments as chunk_gated_delta_rule.
    """
    require(q=q, k=k, v=v)
    allow(g=g, initial_state=initial_state, cu_seqlens=cu_seqlens)
    return _call(
        *(q, k, v, g),
        options=Options(scale),
        **dict(h0=initial_state, final_state=output_final_state, v_first=state_v_first, cu=cu_seqlens),
    )


def fused_recurrent_gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    gk: Tensor | None = None,
    gv: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    *,
    transpose_state_layout: bool | None = None,
) -> Result:
    """As chunk_gla.

    Args:
        gk: None: no decay.
        gv: as fused_recurrent_gated_delta_rule.
        reverse: the tokens are taken from the last to the first; not together with cu_seqlens.
    """
    if reverse and cu_seqlens is not None:
        raise NotImplementedError("reverse together with cu_seqlens is not supported by gdn2; leave one of them out")
    require(q=q, k=k, v=v)
    allow(gk=gk, gv=gv, initial_state=initial_state)
    if reverse:
        q, k, v, gk, gv = (None if x is None else x.flip(1) for x in (q, k, v, gk, gv))
    v_first, values, h0 = _layout(state_v_first, transpose_state_layout), v, initial_state
    if gv is not None:
        v, gk, _, h0 = _channels_as_heads(q, v, gk, gv, None, h0, v_first)
    o, h = chunk_gla(q, k, v, gk, scale, h0, output_final_state, v_first and gv is None, cu_seqlens)
    if gv is not None:
        o, h = _heads_as_channels(o, h, values, v_first)
    return o.flip(1) if reverse else o, h
