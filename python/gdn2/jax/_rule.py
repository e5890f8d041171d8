"""The exact rule as one differentiable function of named tensors."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from gdn2._layout import KEEP_EVERY
from gdn2.jax import _handlers, _inputs

# The tensors that have gradients.
DIFFERENTIABLE = ("q", "k", "v", "g", "b", "w", "h0")


class Options(NamedTuple):
    """What is known when a call is traced."""

    scale: float
    qk_l2norm: bool = False
    final: bool = False  # is the final state wanted?
    inference: bool = False  # forward only
    threads: int = 0


def apply(options: Options, tensors: dict) -> tuple:
    """(o,) or, with options.final, (o, h_final).

    tensors: q, k [B, T, H, K]; v [B, T, HV, V]; where present g, b [B, T, H or HV, K] or per head [B, T, H or HV],
    w [B, T, HV, V] or [B, T, HV], h0 [N, HV, K, V] float32, cu_seqlens [N + 1] int32 or int64.
    """
    # Inside shard_map JAX cannot say which gradients are wanted: all are computed there.
    rule = _all_gradients if _handlers.in_shard_map() else _wanted_gradients
    return rule(options, _handlers.alike(tensors))


def _forward(options, tensors):
    return tuple(_run(options, tensors, False).values())


def _run(options, tensors, training):
    """Outputs by name; when training, and not in float64, also what the backward takes: the residual [B, T, HV, V] and the
    states after every KEEP_EVERY tokens, [B, moments, HV, K, V]."""
    q, v = tensors["q"], tensors["v"]
    sequences = tensors["cu_seqlens"].shape[0] - 1 if "cu_seqlens" in tensors else q.shape[0]
    state = v.shape[2], q.shape[3], v.shape[3]
    results = {"o": _handlers.result(v)}
    if options.final:
        results["h_final"] = _handlers.result(v, (sequences, *state), _inputs.state_type(q))
    if training and q.dtype != jnp.float64:
        results["residual_out"] = _handlers.result(v, v.shape, jnp.float32)
        if moments := q.shape[1] // KEEP_EVERY:
            results["snapshots_out"] = _handlers.result(v, (q.shape[0], moments, *state), jnp.float32)
    return dict(zip(results, call("gdn2_forward", options, list(results.values()), tensors, results)))


def call(target, options, results, tensors, outputs, vmap_method="expand_dims", aliases=None):
    """The custom call with these tensors by name."""
    attributes = dict(scale=options.scale, qk_l2norm=options.qk_l2norm, threads=options.threads, snapshot_every=KEEP_EVERY)
    names = dict(inputs=" ".join(tensors), outputs=" ".join(outputs))
    return _handlers.call(target, results, tensors.values(), vmap_method, aliases, **names, **attributes)


def _keep(options, values, wanted):
    """Outputs and residuals. Names of wanted gradients are no numbers: they go along in the structure of the residuals."""
    if options.inference:
        raise ValueError("is_inference is True; it must be False where a gradient is taken")
    outputs = _run(options, values, bool(wanted))
    kept = {name: outputs.pop(f"{name}_out") for name in ("residual", "snapshots") if f"{name}_out" in outputs}
    return tuple(outputs.values()), (values, kept, {name: None for name in DIFFERENTIABLE if name in wanted})


def _keep_wanted(options, tensors):
    values = {name: x.value for name, x in tensors.items()}
    return _keep(options, values, {name for name, x in tensors.items() if x.perturbed})


def _keep_all(options, tensors):
    return _keep(options, tensors, tensors)


def _backward(options, residuals, cotangents):
    values, kept, wanted = residuals
    given = {name: x for name, x in zip(("d_o", "dh_final"), cotangents) if not isinstance(x, SymbolicZero)}
    gradients = dict.fromkeys(values)  # None: zero, and float0 for integers
    if wanted and given:
        results = [_handlers.result(values[name]) for name in wanted]
        names = [f"d{name}" for name in wanted]
        gradients |= zip(wanted, call("gdn2_backward", options, results, values | given | kept, names))
    return (gradients,)


_wanted_gradients = jax.custom_vjp(_forward, nondiff_argnums=(0,))
_wanted_gradients.defvjp(_keep_wanted, _backward, symbolic_zeros=True)
_all_gradients = jax.custom_vjp(_forward, nondiff_argnums=(0,))
_all_gradients.defvjp(_keep_all, _backward)
