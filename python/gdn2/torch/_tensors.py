"""PyTorch tensors as tensors of the library; the counterpart of gdn2/_arrays.py."""

import ctypes
import mmap

import torch

from gdn2._layout import ABSENT

_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.float64: 3}
_INDEX_TYPES = {torch.int32: 0, torch.int64: 1}
_HUGE_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux has it
_HUGE_FROM = 4 << 20  # bytes, as NumPy has it


def _find_advise():
    if _HUGE_ADVICE is None:
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return advise


_advise = _find_advise()


def fresh(like, shape, dtype=None):
    """An uninitialised tensor for a result.

    PyTorch asks the system for new memory for every large one. In huge pages it comes ten times faster, and a forward whose
    outputs are 32 MiB is a sixth shorter.
    """
    x = like.new_empty(shape) if dtype is None else like.new_empty(shape, dtype=dtype)
    # A fake tensor has no memory, nor always a size.
    if type(x) is torch.Tensor and x.nbytes >= _HUGE_FROM and _advise:
        before = -x.data_ptr() % mmap.PAGESIZE
        _advise(x.data_ptr() + before, x.nbytes - before, _HUGE_ADVICE)
    return x


def require(**tensors):
    """TypeError where one is no tensor."""
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor")


def allow(**tensors):
    """TypeError where one is neither a tensor nor None."""
    for name, x in tensors.items():
        if x is not None and not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is of type {type(x).__name__}; it must be a torch.Tensor or None")


def code(x, name):
    """The library's number of a tensor's element type."""
    found = _CODES.get(x.dtype)
    if found is None:
        raise TypeError(f"{name} has element type {x.dtype}; it must be torch.float32, bfloat16, float16 or float64")
    if not x.is_cpu:
        raise ValueError(f"{name} is on {x.device}; it must be on the CPU")
    return found


def _strides(x):
    # An axis of one element may have any stride.
    return [0 if n == 1 else s for n, s in zip(x.shape, x.stride())]


def _contiguous(x):
    if x.dim() == 4:
        return 0, 0, 0, 0
    _, T, H = x.shape
    return T * H, H, 1, 0


def tokens(x, name, keep):
    """A token tensor, or a gate of one number per head: the six numbers of a gdn2_input.

    Copied once where its channels do not lie one behind the other.
    """
    kind = code(x, name)
    if x.is_contiguous():
        return (x.data_ptr(), kind, 0, 0, 0, 0) if x.dim() == 4 else (x.data_ptr(), kind, *_contiguous(x))
    strides = _strides(x)
    if x.dim() == 3:
        strides.append(0)
    elif x.shape[3] == 1:
        strides[3] = 1
    if strides[3] not in (0, 1) or not any(strides):
        x = x.contiguous()
        keep.append(x)
        strides = _contiguous(x)
    return x.data_ptr(), kind, *strides


def state(x, name, keep):
    """A state [N, H, K, V], or states at several moments [N, T, H, K, V]: any strides."""
    kind = code(x, name)
    if x.is_contiguous():
        return x.data_ptr(), kind, *(0,) * x.dim()
    strides = _strides(x)
    if not any(strides):
        x = x.contiguous()
        keep.append(x)
    return x.data_ptr(), kind, *strides


def output(x, name):
    """A fresh tensor of tokens, a state, or a parameter of one number or one row per head."""
    if x.dim() > 2:
        return x.data_ptr(), code(x, name), *(_contiguous(x) if x.is_contiguous() else _strides(x))
    return x.data_ptr(), code(x, name), *_rows(x)


def states(x, name):
    """States at several moments [N, S, HV, K, V]."""
    return x.data_ptr(), code(x, name), *x.stride()


def place(x, name):
    """As state, to be changed: never a copy."""
    kind = code(x, name)
    strides = (0,) * x.dim() if x.is_contiguous() else _strides(x)
    if not x.is_contiguous() and not any(strides):
        raise ValueError(f"{name} has strides {x.stride()}; they must not all be 0")
    return x.data_ptr(), kind, *strides


def _rows(x):
    n = x.numel()
    return (n, n, 1, 0) if x.dim() == 1 else (n, n, x.shape[1], 1)


def indices(x, name, keep):
    """A vector of int32 or int64: its address, its type and its length."""
    if x.dim() != 1:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must have one axis")
    kind = _INDEX_TYPES.get(x.dtype)
    if kind is None:
        raise TypeError(f"{name} has element type {x.dtype}; it must be torch.int32 or int64")
    if not x.is_cpu:
        raise ValueError(f"{name} is on {x.device}; it must be on the CPU")
    if not x.is_contiguous():
        x = x.contiguous()
    keep.append(x)
    return x.data_ptr(), kind, x.shape[0]


def flags(x, name, keep):
    """A vector of bool or uint8: its address and its length."""
    if x.dim() != 1:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must have one axis")
    if x.dtype not in (torch.bool, torch.uint8):
        raise TypeError(f"{name} has element type {x.dtype}; it must be torch.bool or uint8")
    if not x.is_cpu:
        raise ValueError(f"{name} is on {x.device}; it must be on the CPU")
    x = x.contiguous()
    keep.append(x)
    return x.data_ptr(), x.shape[0]


def parameter(x, name, shapes, keep):
    """A_log or dt_bias: one number per head, or one row per head."""
    if x is None:
        return ABSENT
    if tuple(x.shape) not in shapes:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be {' or '.join(map(str, shapes))}")
    kind = code(x, name)
    if not x.is_contiguous():
        x = x.contiguous()
        keep.append(x)
    return x.data_ptr(), kind, *_rows(x)
