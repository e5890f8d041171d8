"""The seed itself: what atomic-ops 0.1.0 computes in interpret mode, stage by stage, as NumPy arrays."""

import functools

import atomic_ops
import jax
import jax.numpy as jnp
import numpy as np
from atomic_ops import gdn2_bwd, gdn2_fwd, gdn2_pipeline, reference
from jax.experimental.pallas import tpu as pltpu

SCALE = 0.07


def interpreted(function):
    """Runs the kernels of the seed on the CPU."""

    @functools.wraps(function)
    def wrapper(*arguments, **options):
        with pltpu.force_tpu_interpret_mode():
            return jax.tree.map(np.asarray, function(*arguments, **options))

    return wrapper


def config(wy_eps, clip=1e4):
    return atomic_ops.KernelConfig(bt=64, bc=32, mb=16, clip=clip, wy_eps=wy_eps)


def _arrays(x):
    return [jnp.asarray(x[name]) for name in ("q", "k", "v", "w", "b", "g")]


def _h0(x):
    return None if x["h0"] is None else jnp.asarray(x["h0"])


@interpreted
def forward(x, wy_eps, clip=1e4):
    """o, h_final, residuals."""
    return gdn2_fwd.gdn2_pallas_forward_with_residuals(*_arrays(x), SCALE, h0=_h0(x), config=config(wy_eps, clip))


@interpreted
def gradients(x, wy_eps, residuals, d_o, dh_final, clip=1e4):
    """The rule of the seed's custom gradient, applied to residuals that are at hand already."""
    h0 = np.zeros_like(dh_final) if x["h0"] is None else x["h0"]
    everything = {name: jnp.asarray(value) for name, value in {**x, "h0": h0, **residuals}.items()}
    cotangents = (jnp.asarray(d_o), jnp.asarray(dh_final))
    names = ("dq", "dk", "dv", "dw", "db", "dg", "dh0")
    return dict(zip(names, gdn2_pipeline._gdn2_core_bwd(SCALE, config(wy_eps, clip), everything, cotangents)))


@interpreted
def trained(x, wy_eps, d_o, dh_final):
    """o, h_final and the gradients through jax.vjp of the public function."""

    def function(*arguments):
        return atomic_ops.gdn2_pallas_forward_trainable(*arguments[:6], SCALE, h0=arguments[6], config=config(wy_eps))

    outputs, pull = jax.vjp(function, *_arrays(x), jnp.asarray(x["h0"]))
    names = ("dq", "dk", "dv", "dw", "db", "dg", "dh0")
    return outputs, dict(zip(names, pull((jnp.asarray(d_o), jnp.asarray(dh_final)))))


@interpreted
def kernels(x, wy_eps, r, d_o, dh_final, clip=1e4):
    """Inputs and outputs of B2, B1, B3, B4 and B5 on the seed's own numbers."""
    c = config(wy_eps, clip)
    B, L, H, D = x["q"].shape

    def chunks(t):
        return gdn2_fwd._reshape_to_chunks(jnp.asarray(t), B, L // c.bt, H, D, c.bt)

    d_o_chunks = chunks(d_o)
    q, k, v, w, b, g = (chunks(x[name]) for name in ("q", "k", "v", "w", "b", "g"))
    # As gdn2_pipeline does it.
    gc = jnp.einsum("ij,bhcjd->bhcid", jnp.tril(jnp.ones((c.bt, c.bt))), g, precision=jax.lax.Precision.HIGHEST)
    dAqk, dv_partial = gdn2_bwd.dav_backward_pallas(r["Aqk"], r["v_new_all"], d_o_chunks, c)
    b1_inputs = (d_o_chunks, dv_partial, r["w_pseudo"], r["qg"], r["kg"], r["gc_last"])
    dh_all, dh0, dv_all = gdn2_bwd.gdn2_dhu_backward(*b1_inputs, SCALE, dht=jnp.asarray(dh_final), config=c)
    dh_next = gdn2_pipeline._build_dh_next_all(dh_all, jnp.asarray(dh_final))
    b3 = gdn2_bwd.wy_dqkg_backward_pallas(
        q, k, b, w, v, gc, r["A"], r["Akk"], r["h_pre_all"], r["v_new_all"], d_o_chunks, dv_all, dh_next, SCALE, c
    )
    tokens = [jnp.asarray(x[name]) for name in ("q", "k", "b", "g")]
    b4 = gdn2_bwd.intra_backward_pallas(dAqk, b3["dAkk"], *tokens, SCALE, c)
    dgc = b3["dgc"] + b4[3]
    return {
        "gc": gc,
        "d_o": d_o_chunks,
        "b1": (dh_all, dh0, dv_all),
        "b2": (dAqk, dv_partial),
        "b3": b3,
        "b3_inputs": dict(q=q, k=k, b=b, w=w, v=v, dh_next_all=dh_next),
        "b4": b4,
        "dgc": dgc,
        "b5": gdn2_bwd.reverse_cumsum_bwd(dgc, c.bt, c),
    }


def _reference(function, x, **options):
    q, k, v, w, b, g = _arrays(x)
    return jax.tree.map(np.asarray, function(q, k, v, g, b, w, SCALE, h0=_h0(x), **options))


def token_serial(x):
    return _reference(reference.gdn2_token_serial_reference, x)


def chunked_wy(x, chunk_size, wy_eps):
    return _reference(reference.gdn2_chunked_wy_reference, x, chunk_size=chunk_size, wy_eps=wy_eps)


def fallback(x, wy_eps):
    """gdn2_forward without a TPU."""
    return jax.tree.map(np.asarray, atomic_ops.gdn2_forward(*_arrays(x), SCALE, h0=_h0(x), config=config(wy_eps)))
