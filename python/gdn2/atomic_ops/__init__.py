"""The names, arguments and values of the Python package atomic-ops 0.1.0 without a TPU: its kernels are libgdn2's seed pipeline.

    from gdn2 import atomic_ops

Replaces `import atomic_ops`, submodules included. These are that package's semantics, with its damping and clips
(docs/math.md, "The seed's semantics"); gdn2.jax computes the exact rule. Reverse-mode gradients only.
"""

from gdn2 import __version__
from gdn2.atomic_ops.configs import DEFAULT_CONFIG, KAGGLE_LARGE, KAGGLE_MEDIUM, KAGGLE_SMALL, KernelConfig
from gdn2.atomic_ops.fallback import gdn2_forward, gdn2_forward_trainable
from gdn2.atomic_ops.gdn2_fwd import gdn2_pallas_forward, gdn2_pallas_forward_with_residuals
from gdn2.atomic_ops.gdn2_pipeline import gdn2_pallas_forward_trainable
from gdn2.atomic_ops.reference import gdn2_chunked_wy_reference, gdn2_token_serial_reference
from gdn2.atomic_ops.utils import estimate_memory, get_recommended_config, is_tpu_available

__all__ = [
    "KernelConfig",
    "KAGGLE_SMALL",
    "KAGGLE_MEDIUM",
    "KAGGLE_LARGE",
    "DEFAULT_CONFIG",
    "is_tpu_available",
    "estimate_memory",
    "get_recommended_config",
    "gdn2_forward",
    "gdn2_forward_trainable",
    "gdn2_pallas_forward",
    "gdn2_pallas_forward_with_residuals",
    "gdn2_pallas_forward_trainable",
    "gdn2_chunked_wy_reference",
    "gdn2_token_serial_reference",
]
