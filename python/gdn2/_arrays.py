"""NumPy arrays as tensors of the library."""

import ctypes

import numpy as np

from gdn2._layout import ABSENT, DTYPES, INDEX_TYPES

_CODES = {np.dtype(name): code for name, code in DTYPES.items() if name != "bfloat16"}
_ARRAY, _F32 = np.ndarray, np.dtype(np.float32)
_PLAIN = 0x101  # NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED


def _slow_pointer(x):
    return x.__array_interface__["data"][0]


def _fast_pointer(x, word=ctypes.c_void_p.from_address, head=object.__basicsize__):
    return word(id(x) + head).value


def _find_pointer():
    """The address of the data is the first field of NumPy's array object; reading it there takes an eighth of the time of asking.

    Tried out on an array first: another Python or NumPy may do it differently.
    """
    probe = np.zeros(1)
    try:
        works = object.__basicsize__ >= 16 and _fast_pointer(probe) == _slow_pointer(probe)
    except (TypeError, ValueError):
        works = False
    return _fast_pointer if works else _slow_pointer


pointer = _find_pointer()


def code(x, name):
    """The library's number of an array's element type."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be a numpy.ndarray")
    if x.dtype is _F32:
        return 0
    found = _CODES.get(x.dtype)
    if found is None:
        # bfloat16 is a type of ml_dtypes, which need not be there.
        if x.dtype.name != "bfloat16" or not x.dtype.isnative:
            raise TypeError(
                f"{name} has element type {x.dtype}; it must be float32, bfloat16, float16 or float64, in native byte order"
            )
        found = _CODES[x.dtype] = DTYPES["bfloat16"]
    return found


def array(x, name, axes):
    """x as an ndarray with that many axes (a number or a tuple of numbers)."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be a numpy.ndarray")
    if x.ndim != axes and (type(axes) is int or x.ndim not in axes):
        raise ValueError(f"{name} has {x.ndim} axes; it must have {axes if type(axes) is int else ' or '.join(map(str, axes))}")
    return x


def shaped(x, name, shape):
    """x as an ndarray of that shape."""
    x = array(x, name, len(shape))
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}; it must be {shape}")
    return x


def _strides(x):
    """Strides in elements, one more than x has axes where x is one number per head; None: the library cannot take them."""
    size = x.itemsize
    # An axis of one element may have any stride; 0 can neither overflow nor overlap.
    found = [0 if n == 1 else s // size for n, s in zip(x.shape, x.strides)]
    if any(n > 1 and s % size for n, s in zip(x.shape, x.strides)):
        return None
    if x.ndim == 4 and x.shape[3] == 1:
        found[3] = 1
    if x.ndim == 3:
        found.append(0)
    # Four zeros would mean "contiguous".
    return found if any(found) else None


def _contiguous(x):
    if x.ndim == 4:
        return 0, 0, 0, 0
    _, T, H = x.shape
    return T * H, H, 1, 0


def tokens(x, name, keep):
    """A token tensor, or a gate of one number per head: the six numbers of a gdn2_input.

    Copied once, and the copy put into the list `keep`, where its channels do not lie one behind the other.
    """
    if type(x) is _ARRAY and x.dtype is _F32 and x.flags.num & _PLAIN == _PLAIN and x.ndim == 4:
        return pointer(x), 0, 0, 0, 0, 0
    kind = code(x, name)
    if x.flags.num & _PLAIN == _PLAIN:
        return pointer(x), kind, *_contiguous(x)
    strides = _strides(x) if x.flags.aligned else None
    if strides is None or (x.ndim == 4 and strides[3] not in (0, 1)):
        x = np.array(x, order="C")
        keep.append(x)
        strides = _contiguous(x)
    return pointer(x), kind, *strides


def state(x, name, keep):
    """A state [N, H, K, V], or states at several moments [N, T, H, K, V]: any strides."""
    if type(x) is _ARRAY and x.dtype is _F32 and x.flags.num & _PLAIN == _PLAIN and x.ndim == 4:
        return pointer(x), 0, 0, 0, 0, 0
    kind = code(x, name)
    if x.flags.num & _PLAIN == _PLAIN:
        return pointer(x), kind, *(0,) * x.ndim
    strides = _any_strides(x)
    if strides is None:
        x = np.array(x, order="C")
        keep.append(x)
        strides = (0,) * x.ndim
    return pointer(x), kind, *strides


def _any_strides(x):
    """Strides in elements; None: the library cannot take them."""
    if not x.flags.aligned or any(n > 1 and s % x.itemsize for n, s in zip(x.shape, x.strides)):
        return None
    strides = [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)]
    return strides if any(strides) else None


def state_output(x, name):
    """As state, an array that the library writes into."""
    kind = code(x, name)
    if not x.flags.writeable:
        raise ValueError(f"{name} is read-only; it must be writeable")
    if x.flags.num & _PLAIN == _PLAIN:
        return pointer(x), kind, *(0,) * x.ndim
    strides = _any_strides(x)
    if strides is None:
        raise ValueError(
            f"{name} has strides of {x.strides} bytes; they must be multiples of its element size, {x.itemsize}, and not all 0"
        )
    return pointer(x), kind, *strides


def output(x, name):
    """An array that the library writes into: as it lies, or an error."""
    kind = code(x, name)
    if not x.flags.writeable:
        raise ValueError(f"{name} is read-only; it must be writeable")
    if x.flags.num & _PLAIN == _PLAIN:
        return pointer(x), kind, *_contiguous(x)
    strides = _strides(x) if x.flags.aligned else None
    if strides is None:
        raise ValueError(
            f"{name} has strides of {x.strides} bytes; they must be multiples of its element size, {x.itemsize}, and not all 0"
        )
    return pointer(x), kind, *strides


def result(x, name):
    """A fresh array: of tokens, a state, or a parameter of one number or one row per head."""
    if x.ndim == 4:
        return pointer(x), 0 if x.dtype is _F32 else code(x, name), 0, 0, 0, 0
    return pointer(x), code(x, name), *(_contiguous(x) if x.ndim == 3 else _rows(x))


def _rows(x):
    return (x.size, x.size, 1, 0) if x.ndim == 1 else (x.size, x.size, x.shape[1], 1)


def indices(x, name, keep):
    """A vector of int32 or int64: its address, its type and its length."""
    array(x, name, 1)
    kind = INDEX_TYPES.get(x.dtype.name)
    if kind is None or not x.dtype.isnative:
        raise TypeError(f"{name} has element type {x.dtype}; it must be int32 or int64")
    if x.flags.num & _PLAIN != _PLAIN:
        x = np.array(x, order="C")
    keep.append(x)
    return pointer(x), kind, x.shape[0]


def flags(x, name, keep):
    """A vector of bool or uint8: its address and its length."""
    array(x, name, 1)
    if x.dtype not in (np.bool_, np.uint8):
        raise TypeError(f"{name} has element type {x.dtype}; it must be bool or uint8")
    x = np.ascontiguousarray(x)
    keep.append(x)
    return pointer(x), x.shape[0]


def parameter(x, name, shapes, keep):
    """A_log or dt_bias: one number per head, or one row per head."""
    if x is None:
        return ABSENT
    x = array(x, name, (1, 2))
    if x.shape not in shapes:
        raise ValueError(f"{name} has shape {x.shape}; it must be {' or '.join(map(str, shapes))}")
    kind = code(x, name)
    if x.flags.num & _PLAIN != _PLAIN:
        x = np.array(x, order="C")
        keep.append(x)
    return pointer(x), kind, *_rows(x)
