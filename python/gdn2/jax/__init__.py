"""Gated DeltaNet-2 and its family in JAX on CPUs: custom calls of libgdn2 with gradients.

    chunk_gdn2, chunk_kda, chunk_gdn, chunk_gla, chunk_delta_rule                 whole sequences
    gdn2_decode_step, kda_decode_step, gdn_decode_step, gla_decode_step, delta_rule_decode_step    one token

The functions work under jit, grad, vmap, scan, checkpoint and shard_map. They compute the exact rule in float32 (float64 inputs
as far as the library takes them): nothing is clipped or damped. Reverse mode only: jax.jvp is not offered.
"""

from gdn2.jax._chunk import chunk_delta_rule, chunk_gdn, chunk_gdn2, chunk_gla, chunk_kda
from gdn2.jax._decode import (
    delta_rule_decode_step,
    gdn2_decode_step,
    gdn_decode_step,
    gla_decode_step,
    kda_decode_step,
)

__all__ = [
    "chunk_gdn2",
    "chunk_kda",
    "chunk_gdn",
    "chunk_gla",
    "chunk_delta_rule",
    "gdn2_decode_step",
    "kda_decode_step",
    "gdn_decode_step",
    "gla_decode_step",
    "delta_rule_decode_step",
]
