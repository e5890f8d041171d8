"""The forward with its gradient: the backward kernels on what the forward kept."""

import functools

import jax
import jax.numpy as jnp

from gdn2.atomic_ops import _kernels, gdn2_fwd
from gdn2.atomic_ops.configs import DEFAULT_CONFIG, KernelConfig, validate_inputs
from gdn2.jax import _handlers


def gdn2_pallas_forward_trainable(q, k, v, w, b, g, scale, h0=None, config: KernelConfig = DEFAULT_CONFIG):
    """Kernels A to D with a gradient by B2, B1, B3, B4, B5, each of dq, dk, dv, dw, db, dg, dh0 within +-1e4 and in its input's
    dtype. Arguments, results and errors: gdn2_pallas_forward."""
    validate_inputs(q, k, v, w, b, g, scale, h0, config)
    return differentiable(q, k, v, w, b, g, scale, h0, config, "")


def differentiable(q, k, v, w, b, g, scale, h0, config, debug_tag):
    h0 = _kernels.no_state(_kernels.Sizes.of_tokens(q, v)) if h0 is None else h0
    inputs = {i: jnp.asarray(x) for i, x in enumerate((q, k, v, w, b, g, h0))}
    return _pipeline(float(scale), config, debug_tag, *_handlers.alike(inputs).values())


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def _pipeline(scale, config, debug_tag, *inputs):
    return gdn2_fwd.forward(config, scale, debug_tag, inputs)


def _keep(scale, config, debug_tag, *inputs):
    o, h_final, residuals = gdn2_fwd.forward_with_residuals(config, scale, debug_tag, inputs)
    return (o, h_final), (inputs, residuals)


def _gradients(scale, config, debug_tag, kept, cotangents):
    inputs, residuals = kept
    sizes = _kernels.Sizes.of_tokens(inputs[0], inputs[2])
    arguments = (*inputs, *cotangents, *(residuals[name] for name in _kernels.RESIDUALS))
    made = _kernels.run("backward_with_residuals", config, sizes, scale, arguments, _kernels.GRADIENTS)
    return tuple(gradient.astype(x.dtype) for gradient, x in zip(made, inputs))


_pipeline.defvjp(_keep, _gradients)
