"""Fused Gated DeltaNet-2 kernels for CPUs.

forward and backward are one gated delta rule on NumPy arrays, step its decode; the gates choose the member of the family.
conv and norm are the parts around the rule in a layer. Importing gdn2 needs NumPy alone: gdn2.jax, gdn2.torch and
gdn2.transformers import their frameworks.
"""

from gdn2._library import load as _load
from gdn2._parts import conv, conv_backward, norm, norm_backward
from gdn2._rule import backward, forward
from gdn2._step import step

__version__: str = _load().gdn2_version().decode()
__all__ = ["backward", "conv", "conv_backward", "forward", "norm", "norm_backward", "step"]
