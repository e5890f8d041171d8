"""Backward kernels, in the order B2, B1, B3, B4, B5. Tensors of chunks: [batch, heads, chunks, bt, d_head]."""

from gdn2.atomic_ops import _kernels
from gdn2.atomic_ops.configs import DEFAULT_CONFIG, KernelConfig


def reverse_cumsum_bwd(dgc, chunk_size: int, config: KernelConfig = DEFAULT_CONFIG):
    """B5: sums of dgc [..., chunk_size, d_head] from each row of a chunk to its last."""
    sizes = _kernels.Sizes.of_chunks(dgc, dgc)
    limits = _kernels.Limits.of_chunk(chunk_size, clip=config.clip)
    return _kernels.run("reverse_cumsum", limits, sizes, 1.0, (dgc,), ("keys",))[0]


def gdn2_dhu_backward(
    do, dv_partial, w_pseudo, qg, kg, gc_last, scale, dht=None, config: KernelConfig = DEFAULT_CONFIG
):
    """B1: dh_all, the gradient of the state before every chunk; dh0; dv_all."""
    sizes = _kernels.Sizes.of_chunks(qg, do)
    dht = _kernels.no_state(sizes) if dht is None else dht
    arguments = (do, dv_partial, w_pseudo, qg, kg, gc_last, dht)
    return tuple(_kernels.run("dhu_backward", config, sizes, scale, arguments, ("states", "state", "values")))


def dav_backward_pallas(Aqk, v_new, do, config: KernelConfig = DEFAULT_CONFIG):
    """B2: dAqk, and the part of dv_new that comes through Aqk."""
    sizes = _kernels.Sizes.of_chunks(v_new, v_new)
    return tuple(_kernels.run("dav_backward", config, sizes, 1.0, (Aqk, v_new, do), ("score", "values")))


def wy_dqkg_backward_pallas(
    q, k, b, w, v, gc, A, Akk, h_pre_all, v_new_all, do, dv, dh_next_all, scale, config: KernelConfig = DEFAULT_CONFIG
):
    """B3: dictionary of dq, dk, db, dw, dv_raw, dgc, dAkk."""
    sizes = _kernels.Sizes.of_chunks(q, v)
    arguments = (q, k, b, gc, w, v, A, h_pre_all, v_new_all, do, dv, dh_next_all)
    kinds = dict(dq="keys", dk="keys", db="keys", dw="values", dv_raw="values", dgc="keys", dAkk="score")
    return dict(zip(kinds, _kernels.run("wy_backward", config, sizes, scale, arguments, kinds.values())))


def intra_backward_pallas(
    dAqk, dAkk, q, k, b, g, scale, config: KernelConfig = DEFAULT_CONFIG, interpret: bool = False
):
    """B4: dq, dk, db, dgc of chunks, for q, k, b, g of tokens. interpret changes nothing."""
    sizes = _kernels.Sizes.of_tokens(q, q)
    arguments = (dAqk, dAkk, q, k, b, g)
    return tuple(_kernels.run("intra_backward", config, sizes, scale, arguments, ("keys",) * 4))
