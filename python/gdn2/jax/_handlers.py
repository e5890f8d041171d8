"""The handlers of libgdn2 as targets of jax.ffi, and what every call of them shares."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from gdn2 import _library

_typeof = jax.typeof if hasattr(jax, "typeof") else jax.core.get_aval
TARGETS = ("forward", "backward", "step", "seed")


@functools.cache
def register() -> None:
    """Makes gdn2_forward, gdn2_backward, gdn2_step and gdn2_seed known to XLA, once.

    Raises:
        ImportError: the library was built without the headers of jaxlib.
    """
    library = _library.load()
    for name in TARGETS:
        if not hasattr(library, f"gdn2_xla_{name}"):
            raise ImportError(
                f"{_library.path()} was built without its JAX handlers; build it where jaxlib is installed (option GDN2_XLA_FFI)"
            )
        handler = jax.ffi.pycapsule(getattr(library, f"gdn2_xla_{name}"))
        jax.ffi.register_ffi_target(f"gdn2_{name}", handler, platform="cpu")


def in_shard_map() -> bool:
    """Also where an old JAX cannot say."""
    if not hasattr(jax.sharding, "get_abstract_mesh"):
        return True
    return bool(getattr(jax.sharding.get_abstract_mesh(), "manual_axes", ()))


def varying(x) -> frozenset:
    """The mesh axes of shard_map along which x may differ; empty outside of it. JAX has two names for them."""
    kind = _typeof(x)
    return getattr(kind, "vma", None) or getattr(getattr(kind, "mat", None), "varying", frozenset())


def alike(tensors: dict) -> dict:
    """The tensors, made to vary over the same axes of a mesh, as a custom call wants them. To be done where JAX sees it: the
    gradient of what was the same on all devices is a sum over them."""
    axes = frozenset().union(*map(varying, tensors.values()))
    if not axes:
        return tensors
    return {name: _vary(x, tuple(axes - varying(x))) for name, x in tensors.items()}


def _vary(x, axes):
    if not axes:
        return x
    return jax.lax.pcast(x, axes, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(x, axes)


def result(like, shape=None, dtype=None):
    """Shape and type of a result that varies over the mesh as `like` does; otherwise as given, or as `like`."""
    return _typeof(like).update(shape=shape or like.shape, dtype=jnp.dtype(dtype or like.dtype), weak_type=False)


def call(target, results, arguments, vmap_method, aliases=None, **attributes):
    """jax.ffi.ffi_call; integers and floating-point attributes are sent with 64 bits."""
    wide = {bool: np.int64, int: np.int64, float: np.float64}
    sent = {name: wide.get(type(value), lambda x: x)(value) for name, value in attributes.items()}
    return jax.ffi.ffi_call(target, results, vmap_method=vmap_method, input_output_aliases=aliases)(*arguments, **sent)


register()
