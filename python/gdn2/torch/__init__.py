"""PyTorch: the rules under the names, arguments and return values of flash-linear-attention, on the CPU; and the
causal convolution (conv) and the gated RMS norm (norm) that stand around them in a layer, and decode in place (step).

Everything but step is differentiable once (second derivatives are refused), works under torch.compile, and takes float32,
bfloat16, float16 and float64 tensors in any strides. Under autocast nothing is cast: tensors are taken in the types they
have, float32 gates stay float32. Where a gradient is needed, the forward of a rule keeps the state after every 128 tokens for
its backward (not in float64); otherwise it keeps none.
"""

from gdn2.torch._fla import chunk_gdn2, chunk_kda, fused_recurrent_gdn2, fused_recurrent_kda
from gdn2.torch._fla_heads import (
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_gla,
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_gla,
)
from gdn2.torch._parts import conv, norm
from gdn2.torch._step import step

__all__ = [
    "chunk_delta_rule",
    "chunk_gated_delta_rule",
    "chunk_gdn2",
    "chunk_gla",
    "chunk_kda",
    "conv",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gdn2",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "norm",
    "step",
]
