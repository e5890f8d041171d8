"""Hugging Face transformers: the linear layers of Qwen3-Next and Qwen3.5 on libgdn2.

    import gdn2.transformers
    gdn2.transformers.patch(model)      # convolution, rule and gated norm of every linear layer
    gdn2.transformers.unpatch(model)    # as it was

Weights, caches and everything around the linear layers stay what they are; training works. Decay, gates and norms are
computed in float32 whatever the type of the model. Packed sequences (cu_seq_lens_q) are kept apart, which the layers
themselves refuse without further packages.
"""

import inspect
from types import MethodType

import torch
from torch import Tensor, nn

from gdn2._problem import Options
from gdn2.torch._ops import rule, state_type
from gdn2.torch._parts import conv, norm
from gdn2.torch._step import States
from gdn2.torch._step import run as step

_LAYERS = {"Qwen3NextGatedDeltaNet", "Qwen3_5GatedDeltaNet", "Qwen3_5MoeGatedDeltaNet"}
# The decay by softplus, both gates by sigmoid of beta, normalised queries and keys.
_OPTIONS = Options(None, 0, 1, 0.0, 1, 1, True)
# Up to so many tokens are taken one by one on the state where it lies.
_FEW = 8


def _is_layer(module: nn.Module) -> bool:
    return type(module).__name__ in _LAYERS


def _check(module):
    """The layer has to be one that this file knows."""
    name = type(module).__name__
    if module.activation not in ("silu", "swish"):
        raise ValueError(f"{name} has the activation {module.activation!r}; it must be silu")
    parameters = inspect.signature(inspect.unwrap(type(module).forward)).parameters
    if not {"hidden_states", "cache", "attention_mask"} <= set(parameters):
        raise RuntimeError(
            f"{name} of this version of transformers takes {list(parameters)}; gdn2 was written for transformers 5.24"
        )


def patch(model: nn.Module) -> int:
    """Makes every Qwen3-Next and Qwen3.5 linear layer of a model run on libgdn2.

    Args:
        model: any module that contains such layers; on another device than the CPU they run as before.

    Returns:
        How many layers run on libgdn2 now. Patching twice changes nothing.

    Raises:
        ValueError: the model has no such layer, or one with an activation other than silu.
        RuntimeError: the layers are those of a version of transformers that gdn2 does not know.
    """
    layers = [module for module in model.modules() if _is_layer(module)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no layer that gdn2 knows; those are {', '.join(sorted(_LAYERS))}")
    for layer in layers:
        _check(layer)
    for layer in layers:
        if "_gdn2_before" not in layer.__dict__:
            layer.__dict__["_gdn2_before"] = layer.__dict__.get("forward")
            layer.forward = MethodType(_forward, layer)
    return len(layers)


def unpatch(model: nn.Module) -> int:
    """Undoes patch; how many layers it had changed."""
    layers = [module for module in model.modules() if "_gdn2_before" in module.__dict__]
    for layer in layers:
        before = layer.__dict__.pop("_gdn2_before")
        del layer.forward
        if before is not None:
            layer.forward = before
    return len(layers)


def _original(layer, *arguments, **options):
    before = layer.__dict__["_gdn2_before"]
    return before(*arguments, **options) if before is not None else type(layer).forward(layer, *arguments, **options)


def _project(layer, x):
    """qkv [B, T, D] before the convolution, z [B, T, HV, V], raw beta and raw decay [B, T, HV]."""
    if hasattr(layer, "in_proj_qkvz"):
        q, k, v, z, b, a = layer.fix_query_key_value_ordering(layer.in_proj_qkvz(x), layer.in_proj_ba(x))
        return torch.cat([part.flatten(2) for part in (q, k, v)], dim=-1), z, b, a
    z = layer.in_proj_z(x).unflatten(-1, (-1, layer.head_v_dim))
    return layer.in_proj_qkv(x), z, layer.in_proj_b(x), layer.in_proj_a(x)


def _convolve(layer, x, cache, cu_seqlens):
    """The convolution with SiLU; the cache gets the inputs that the next call needs."""
    weight = layer.conv1d.weight.squeeze(1)
    width = weight.shape[1]
    state = None if cache is None else cache.get_conv_state(layer.layer_idx, state_idx=0)
    if state is not None:
        state = state[..., 1 - width :]
    y, _ = conv(x, weight.to(x.dtype), layer.conv1d.bias, state=state, silu=True, cu_seqlens=cu_seqlens)
    if cache is not None:
        cache.update_conv_state(x.transpose(1, 2), layer.layer_idx, conv_kernel_size=layer.conv_kernel_size)
    return y


def _mix(layer, y, raw_beta, raw_decay, h0, final_state, cu_seqlens):
    """The rule on the convolved q, k and v, where they lie."""
    q, k, v = y.split([layer.key_dim, layer.key_dim, layer.value_dim], dim=-1)
    q, k = (part.unflatten(-1, (-1, layer.head_k_dim)) for part in (q, k))
    v = v.unflatten(-1, (-1, layer.head_v_dim))
    wide = state_type(y)
    parameters = (layer.A_log.to(wide), layer.dt_bias.to(wide))
    if h0 is not None and q.shape[1] <= _FEW and wide is torch.float32 and not torch.is_grad_enabled():
        # The cache's own state is changed in place.
        return step(q, k, v, raw_decay, None, None, raw_beta, cu_seqlens, *parameters, *_OPTIONS, *States(h0)), None
    h0 = None if h0 is None else h0.to(wide)
    return rule(*(q, k, v, raw_decay, None, None, raw_beta, h0, cu_seqlens, *parameters), *_OPTIONS, *(final_state, False))


def _forward(self, hidden_states: Tensor, cache=None, attention_mask: Tensor | None = None, **kwargs) -> Tensor:
    """The forward of a linear layer."""
    cache = kwargs.pop("cache_params", cache)
    if not hidden_states.is_cpu:
        return _original(self, hidden_states, cache=cache, attention_mask=attention_mask, **kwargs)
    cu_seqlens = kwargs.get("cu_seq_lens_q")
    if attention_mask is not None:
        hidden_states = (hidden_states * attention_mask[:, :, None]).to(hidden_states.dtype)
    # The state of the rule has to be read before the convolution tells the cache that there are states.
    h0 = None if cache is None else cache.get_recurrent_state(self.layer_idx, state_idx=0)
    qkv, z, raw_beta, raw_decay = _project(self, hidden_states)
    y = _convolve(self, qkv, cache, cu_seqlens)
    o, h = _mix(self, y, raw_beta, raw_decay, h0, cache is not None, cu_seqlens)
    if cache is not None and h is not None:
        cache.update_recurrent_state(h, self.layer_idx)
    o = norm(o, self.norm.weight, z, eps=self.norm.variance_epsilon)
    return self.out_proj(o.flatten(2))
