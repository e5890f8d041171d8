"""Fused Gated DeltaNet-2 kernels for CPUs.

Importing gdn2 needs NumPy alone; gdn2.jax and gdn2.torch import their frameworks.
"""

from gdn2._library import load as _load

__version__ = _load().gdn2_version().decode()
