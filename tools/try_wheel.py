"""What an installed wheel must do with NumPy alone: hold its library with the handlers for JAX, its type marker and its modules,
and compute."""

import ctypes
import sys
from pathlib import Path

import numpy as np

import gdn2

folder = Path(gdn2.__file__).parent
assert "site-packages" in str(folder), f"{folder} is not an installed package"
MODULES = ("jax/__init__.py", "atomic_ops/__init__.py", "torch/__init__.py", "transformers.py", "bench.py")
for name in ("libgdn2.so", "py.typed", *MODULES):
    assert (folder / name).is_file(), f"the wheel has no {name}"
assert hasattr(ctypes.CDLL(str(folder / "libgdn2.so")), "gdn2_xla_forward"), "the library of the wheel has no handlers for JAX"
assert not {"jax", "torch", "ml_dtypes"} & set(sys.modules), "importing gdn2 needs NumPy alone"

# Values are written under keys, one of them is overwritten, and both keys are read back.
k = np.array([[1, 0], [0, 1], [1, 0], [0, 0]], np.float32).reshape(1, 4, 1, 2)
v = np.array([[1, 2], [3, 4], [5, 6], [0, 0]], np.float32).reshape(1, 4, 1, 2)
q = np.array([[1, 0], [0, 1], [1, 0], [0, 1]], np.float32).reshape(1, 4, 1, 2)
o, state = gdn2.forward(q, k, v, b=np.ones((1, 4, 1), np.float32), scale=1.0)
assert np.array_equal(o[0, :, 0], [[1, 2], [3, 4], [5, 6], [3, 4]]), o
assert np.array_equal(state[0, 0], [[5, 6], [3, 4]]), state
print(f"gdn2 {gdn2.__version__}: the wheel works")
