"""What the machine has, and what a call needs."""

import jax

from gdn2.atomic_ops.configs import KAGGLE_LARGE, KAGGLE_MEDIUM, KAGGLE_SMALL, KernelConfig


def is_tpu_available() -> bool:
    """Has JAX a TPU here?"""
    try:
        return jax.devices("tpu")[0].platform == "tpu"
    except RuntimeError:
        return False


def estimate_memory(
    batch: int, seq_len: int, heads: int, d_head: int = 128, bt: int = 256, bytes_per_param: int = 4
) -> float:
    """Memory of the residuals between forward and backward, in MB of 2^20 bytes."""
    numbers = 3 * bt * bt + 7 * bt * d_head + 2 * d_head * d_head
    return batch * heads * ((seq_len // bt) * numbers * bytes_per_param / (1024 * 1024))


def get_recommended_config(batch: int, seq_len: int, heads: int, d_head: int = 128) -> KernelConfig:
    """KAGGLE_LARGE above 6000 MB of that estimate, KAGGLE_MEDIUM above 2500, else KAGGLE_SMALL."""
    megabytes = estimate_memory(batch, seq_len, heads, d_head)
    if megabytes > 6000:
        return KAGGLE_LARGE
    return KAGGLE_MEDIUM if megabytes > 2500 else KAGGLE_SMALL
