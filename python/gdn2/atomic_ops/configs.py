"""Configuration, presets, clips, diagnostics and the check of shapes."""

import dataclasses
import os

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class KernelConfig:
    """Sizes of the blocks and guards of the arithmetic.

    bt: tokens of a chunk. bc: rows of a block, half of bt. mb: rows that are solved one by one; divides bc.
    clip: bound of every value that leaves a kernel. wy_eps: damping of the triangular inverse, in [0, 1).

    Raises ValueError for anything else.
    """

    bt: int = 256
    bc: int = 128
    mb: int = 16
    clip: float = 1e4
    wy_eps: float = 0.0

    @property
    def n_sub(self) -> int:
        """Blocks of a chunk."""
        return self.bt // self.bc

    @property
    def n_micro(self) -> int:
        """Micro-blocks of a block."""
        return self.bc // self.mb

    def __post_init__(self):
        if self.bt % self.bc != 0:
            raise ValueError(f"bt={self.bt} is not a multiple of bc={self.bc}: it must be divisible by it")
        if self.bt != 2 * self.bc:
            raise ValueError(f"bt={self.bt} is not 2*bc: with bc={self.bc} it must equal {2 * self.bc} (mb may be varied)")
        if self.bc % self.mb != 0:
            raise ValueError(f"bc={self.bc} is not a multiple of mb={self.mb}: it must be divisible by it")
        if not 0.0 <= self.wy_eps < 1.0:
            raise ValueError(f"wy_eps={self.wy_eps} is out of range: it must be in [0, 1)")
        if not self.clip >= 0.0:
            raise ValueError(f"clip={self.clip} is out of range: it must be 0 or more")


KAGGLE_SMALL = KernelConfig(bt=128, bc=64, mb=16, clip=1e4, wy_eps=1e-3)
KAGGLE_MEDIUM = KernelConfig(bt=256, bc=128, mb=16, clip=1e4, wy_eps=1e-3)
KAGGLE_LARGE = KernelConfig(bt=256, bc=128, mb=16, clip=5e3, wy_eps=1e-3)
DEFAULT_CONFIG = KAGGLE_MEDIUM


def sanitize(x, config: KernelConfig = DEFAULT_CONFIG):
    """x within +-config.clip, NaN as 0."""
    return jnp.where(jnp.isnan(x), 0, jnp.clip(x, -config.clip, config.clip)).astype(x.dtype)


def sanitize_h0(h0, config: KernelConfig = DEFAULT_CONFIG):
    """sanitize, of an initial state."""
    return sanitize(h0, config)


def clip_acc(x, config: KernelConfig = DEFAULT_CONFIG):
    """sanitize, of a sum."""
    return sanitize(x, config)


# Read once, when the module is imported.
_DIAGNOSED = os.environ.get("GDN2_FWD_DIAG", "0") == "1"
_LARGE = 1e6


def diagnosed() -> bool:
    return _DIAGNOSED


def diagnose(tag: str, x):
    """With GDN2_FWD_DIAG=1 prints how many values of x are not finite or, if all are, that one is above 1e6 in size."""
    if not _DIAGNOSED:
        return
    finite = jnp.isfinite(x)
    jax.debug.callback(_report, jnp.sum(~finite), jnp.max(jnp.abs(jnp.where(finite, x, 0.0))), tag=tag)


def _report(nonfinite, most, tag):
    if nonfinite > 0:
        line = f"non-finite at {tag}: n_nonfinite={nonfinite} max_abs_finite={most:.3e}"
    elif most > _LARGE:
        line = f"suspiciously large (still finite) at {tag}: max_abs={most:.3e}"
    else:
        return
    # The end of the line in the same write: callbacks run on several threads at once.
    print(f"[GDN2-FWD-DIAG] {line}\n", end="", flush=True)


def validate_inputs(q, k, v, w, b, g, scale, h0, config: KernelConfig):
    """(batch, seq_len, heads, d_head, chunks) of tensors that fit each other and the kernels.

    Raises ValueError with the name of the tensor that does not."""
    if q.ndim != 4:
        raise ValueError(f"q has shape {q.shape}: it must be (batch, seq_len, heads, d_head)")
    batch, length, heads, d_head = q.shape
    if d_head != 128:
        raise ValueError(f"q has d_head={d_head}: the kernels take d_head=128 only")
    if length % config.bt != 0:
        raise ValueError(f"q has seq_len={length}: it must be divisible by config.bt={config.bt}")
    for name, x in (("k", k), ("v", v), ("w", w), ("b", b), ("g", g)):
        if x.shape != q.shape:
            raise ValueError(f"{name}.shape={x.shape} differs from q.shape={q.shape}: they must match")
    state = (batch, heads, d_head, d_head)
    if h0 is not None and h0.shape != state:
        raise ValueError(f"h0.shape={h0.shape} is not that of a state: it must be {state}")
    return batch, length, heads, d_head, length // config.bt
