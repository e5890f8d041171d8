"""Forward kernels: A scores, B solve, C rebuild, D combine, one by one and together."""

import jax.numpy as jnp

from gdn2.atomic_ops import _kernels
from gdn2.atomic_ops.configs import DEFAULT_CONFIG, KernelConfig, diagnose, diagnosed, validate_inputs

# The stages that diagnostics look at, with the letter of the kernel that makes them.
_STAGES = ("A_Aqk", "A_Akk", "B_wy_inverse_A", "C_w_pseudo", "C_u", "C_kg", "C_qg", "D_h_final", "D_o")


def build_chunk_scores_pallas(q, k, b, g, scale, config: KernelConfig = DEFAULT_CONFIG, interpret: bool = False):
    """Kernel A: Aqk and Akk [batch, heads, chunks, bt, bt] of q, k, b, g [batch, seq_len, heads, d_head]. interpret changes
    nothing: these kernels run on a CPU."""
    sizes = _kernels.Sizes.of_tokens(q, q)
    return tuple(_kernels.run("scores", config, sizes, scale, (q, k, b, g), ("score", "score")))


def wy_solve_pallas(Akk, config: KernelConfig = DEFAULT_CONFIG):
    """Kernel B: A = (I + (1 - wy_eps) Akk)^-1."""
    B, H, chunks, bt, _ = Akk.shape
    sizes = _kernels.Sizes(B, chunks * bt, H, 1, 1)
    return _kernels.run("solve", config, sizes, 1.0, (Akk,), ("score",))[0]


def recompute_wy_pallas(q, k, v, w, b, g, A, config: KernelConfig = DEFAULT_CONFIG):
    """Kernel C: w_pseudo, u, kg, qg [batch, heads, chunks, bt, d_head] and gc_last [batch, heads, chunks, d_head]."""
    kinds = ("keys", "values", "keys", "keys", "last")
    return tuple(_kernels.run("rebuild", config, _kernels.Sizes.of_tokens(q, v), 1.0, (q, k, v, w, b, g, A), kinds))


def _combine(kernel, carried, scale, h0, config, kinds):
    sizes = _kernels.Sizes.of_chunks(carried[1], carried[2])
    state = _kernels.no_state(sizes) if h0 is None else h0
    return _kernels.run(kernel, config, sizes, scale, (*carried, state), kinds)


def gdn2_inter_chunk_combine(
    Aqk, w_pseudo, u, kg, qg, gc_last, scale, h0=None, config: KernelConfig = DEFAULT_CONFIG, debug_tag: str = ""
):
    """Kernel D: o [batch, heads, chunks, bt, d_head] and the final state [batch, heads, d_head, d_head]."""
    o, h_final = _combine("combine", (Aqk, w_pseudo, u, kg, qg, gc_last), scale, h0, config, ("values", "state"))
    diagnose(f"{debug_tag}:kernel_D_h_final", h_final)
    diagnose(f"{debug_tag}:kernel_D_o", o)
    return o, h_final


def gdn2_inter_chunk_combine_with_state(
    Aqk, w_pseudo, u, kg, qg, gc_last, scale, h0=None, config: KernelConfig = DEFAULT_CONFIG, debug_tag: str = ""
):
    """Kernel D, which also gives the state before every chunk and v_new, both with the axis of chunks first."""
    kinds = ("values", "state", "states", "values")
    carried = (Aqk, w_pseudo, u, kg, qg, gc_last)
    o, h_final, h_pre_all, v_new_all = _combine("combine_with_state", carried, scale, h0, config, kinds)
    diagnose(f"{debug_tag}:kernel_D_h_final", h_final)
    diagnose(f"{debug_tag}:kernel_D_o", o)
    return o, h_final, jnp.moveaxis(h_pre_all, 2, 0), jnp.moveaxis(v_new_all, 2, 0)


def gdn2_pallas_forward(q, k, v, w, b, g, scale, h0=None, config: KernelConfig = DEFAULT_CONFIG, debug_tag: str = ""):
    """Kernels A to D.

    Args:
        q, k, v, w, b, g: [batch, seq_len, heads, 128], seq_len a multiple of config.bt; computed with as float32.
        scale: factor on q, a number.
        h0: [batch, heads, 128, 128]; None: zeros.

    Returns:
        o [batch, seq_len, heads, 128] and h_final [batch, heads, 128, 128], float32.

    Raises:
        ValueError: from validate_inputs.
    """
    from gdn2.atomic_ops import gdn2_pipeline

    validate_inputs(q, k, v, w, b, g, scale, h0, config)
    return gdn2_pipeline.differentiable(q, k, v, w, b, g, scale, h0, config, debug_tag)


def gdn2_pallas_forward_with_residuals(
    q, k, v, w, b, g, scale, h0=None, config: KernelConfig = DEFAULT_CONFIG, debug_tag: str = ""
):
    """As gdn2_pallas_forward, with a dictionary of what the backward uses: Aqk, Akk, A, h_pre_all, v_new_all, w_pseudo, u, kg,
    qg, gc_last. It has no gradient."""
    validate_inputs(q, k, v, w, b, g, scale, h0, config)
    sizes = _kernels.Sizes.of_tokens(q, v)
    state = _kernels.no_state(sizes) if h0 is None else h0
    return forward_with_residuals(config, scale, debug_tag, (q, k, v, w, b, g, state))


def forward_with_residuals(config, scale, debug_tag, inputs):
    """o, h_final, residuals; inputs: q, k, v, w, b, g, h0."""
    sizes = _kernels.Sizes.of_tokens(inputs[0], inputs[2])
    kinds = (*_kernels.OUTPUTS, *_kernels.RESIDUAL_KINDS)
    o, h_final, *kept = _kernels.run("forward_with_residuals", config, sizes, scale, inputs, kinds)
    residuals = dict(zip(_kernels.RESIDUALS, kept))
    made = [residuals[name] for name in ("Aqk", "Akk", "A", "w_pseudo", "u", "kg", "qg")] + [h_final, o]
    for stage, x in zip(_STAGES, made):
        diagnose(f"{debug_tag}:kernel_{stage}", x)
    return o, h_final, residuals


def forward(config, scale, debug_tag, inputs):
    """o, h_final; inputs: q, k, v, w, b, g, h0."""
    if diagnosed():
        return forward_with_residuals(config, scale, debug_tag, inputs)[:2]
    sizes = _kernels.Sizes.of_tokens(inputs[0], inputs[2])
    return tuple(_kernels.run("forward", config, sizes, scale, inputs, _kernels.OUTPUTS))
