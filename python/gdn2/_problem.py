"""What forward and backward share: shapes are checked here, strides and values by the library.

Written for arrays and torch tensors alike: `adapt` is the module that turns one into the numbers of a gdn2_input (_arrays.py,
_tensors.py).
"""

import ctypes
import math
import operator
from typing import NamedTuple

from gdn2._layout import ABSENT, DECAYS, GATES, HEAD_MAPS, ISAS, PROBLEM, WRITES


class Sizes(NamedTuple):
    """Hg, Hb: heads of g and b. N: sequences."""

    B: int
    T: int
    H: int
    K: int
    V: int
    HV: int
    Hg: int
    Hb: int
    N: int


class Options(NamedTuple):
    """Everything of a problem that is not a tensor, as numbers of the library. scale: None is K^-1/2."""

    scale: float | None = None
    head_map: int = 0
    decay: int = 0
    lower_bound: float = 0.0
    erase: int = 0
    write: int = 0
    qk_l2norm: bool = False


class Inputs(NamedTuple):
    """The tensors of a problem; all but the first three may be None. beta stands for b and w at once."""

    q: object
    k: object
    v: object
    g: object = None
    b: object = None
    w: object = None
    beta: object = None
    h0: object = None
    cu_seqlens: object = None
    A_log: object = None
    dt_bias: object = None


# A named tuple from a tuple of all its fields: half the time of its own constructor, which takes them one by one.
named = tuple.__new__


def choice(table, name, value):
    """The library's number of a named choice."""
    try:
        return table[value]
    except (KeyError, TypeError):
        raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, table))}") from None


def options(scale, head_map, decay, lower_bound, erase, write, qk_l2norm):
    scale = None if scale is None else float(scale)
    bound = 0.0 if lower_bound is None else float(lower_bound)
    try:
        numbers = (scale, HEAD_MAPS[head_map], DECAYS[decay], bound, GATES[erase], WRITES[write], bool(qk_l2norm))
        return named(Options, numbers)
    except (KeyError, TypeError):
        for table, name, value in (
            (HEAD_MAPS, "head_map", head_map),
            (DECAYS, "decay", decay),
            (GATES, "erase", erase),
            (WRITES, "write", write),
        ):
            choice(table, name, value)
        raise


def whole(name, value, bits=64):
    """A whole number that fits so many bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}; it must be a whole number") from None
    if number >> (bits - 1) not in (0, -1):
        raise ValueError(f"{name} is {number}; it must be below 2^{bits - 1}")
    return number


def finite(name, value, wide=False):
    """A finite number of the arithmetic, float32 or float64; the library's sentence, where its call comes later or elsewhere."""
    number = float(value)
    if not math.isfinite(number if wide else ctypes.c_float(number).value):
        raise ValueError(f"{name} is {number:g}; it must be finite as a {'float64' if wide else 'float32'}")
    return number


def execution(threads, isa):
    """The numbers of a gdn2_exec without a workspace."""
    return whole("threads", threads, 32), choice(ISAS, "isa", isa), 0, 0


def expect(name, x, expected):
    if getattr(x, "shape", None) != expected:
        axes(name, x, " ".join(map(str, expected)))
        raise ValueError(f"{name} has shape {tuple(x.shape)}; it must be {tuple(expected)}")


def axes(name, x, letters):
    shape = getattr(x, "shape", None)
    if shape is None:
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be an array")
    if len(shape) != letters.count(" ") + 1:
        raise ValueError(f"{name} has shape {tuple(shape)}; it must be [{', '.join(letters.split())}]")
    return shape


def drafts(name, x, rows, moments, sizes):
    """The first so many of the moments of x, which may have more."""
    shape = axes(name, x, "N T HV K V")
    least = (rows, moments, sizes.HV, sizes.K, sizes.V)
    if (*shape[:1], *shape[2:]) != (*least[:1], *least[2:]) or shape[1] < moments:
        raise ValueError(f"{name} has shape {tuple(shape)}; it must be {least}, or longer along its second axis")
    return x[:, :moments]


def _gate(name, x, lead, heads, channels):
    """Heads of a gate [B, T, heads, channels], or [B, T, heads] for one number per head."""
    shape = getattr(x, "shape", None)
    if shape is None:
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be an array")
    if len(shape) in (3, 4) and shape[:2] == lead and shape[2] in heads and (len(shape) == 3 or shape[3] == channels):
        return shape[2]
    B, T = lead
    wanted = " or ".join(dict.fromkeys(f"({B}, {T}, {n}, {channels}) or ({B}, {T}, {n})" for n in heads))
    raise ValueError(f"{name} has shape {tuple(shape)}; it must be {wanted}")


def sequences(adapt, cu_seqlens, keep):
    """Address and type of cu_seqlens, and the number of sequences."""
    where, kind, n = adapt.indices(cu_seqlens, "cu_seqlens", keep)
    if n == 0:
        raise ValueError("cu_seqlens has shape (0,); it must be [N + 1]")
    return where, kind, n - 1


def problem(adapt, x, o, keep):
    """(Sizes, a gdn2_problem as bytes) of Inputs and Options. What must live until the call ends is put into the list `keep`."""
    q, k, v, g, b, w, beta, h0, cu_seqlens, A_log, dt_bias = x
    if beta is not None:
        if b is not None or w is not None:
            raise ValueError("beta is given together with b or w; it stands for both of them")
        b = w = beta
    try:
        B, T, H, K = lead = q.shape
        rows, length, HV, V = v.shape
    except (AttributeError, TypeError, ValueError):
        axes("q", q, "B T H K")
        axes("v", v, "B T HV V")
        raise
    if getattr(k, "shape", None) != lead:
        expect("k", k, lead)
    if rows != B or length != T:
        expect("v", v, (B, T, HV, V))
    Hg = Hb = HV
    keys, values = (B, T, HV, K), (B, T, HV, V)
    if g is not None and getattr(g, "shape", None) != keys:
        Hg = _gate("g", g, lead[:2], (HV, H), K)
    if b is not None and getattr(b, "shape", None) != keys:
        Hb = _gate("b", b, lead[:2], (HV, H), K) if beta is None else _gate("beta", b, lead[:2], (HV,), K)
    if w is not None and beta is None and getattr(w, "shape", None) != values:
        _gate("w", w, lead[:2], (HV,), V)
    if o.decay == 0 and (A_log is not None or dt_bias is not None):
        raise ValueError(f"{'dt_bias' if A_log is None else 'A_log'} is given; it must be None where decay is 'log'")
    where, kind, N = (0, 0, B) if cu_seqlens is None else sequences(adapt, cu_seqlens, keep)
    scale = 0
    if o.scale is not None:
        keep.append(ctypes.c_double(o.scale))
        scale = ctypes.addressof(keep[-1])
    state = ABSENT
    if h0 is not None:
        expect("h0", h0, (N, HV, K, V))
        state = adapt.state(h0, "h0", keep)
    packed = PROBLEM.packed.pack(
        *(B, T, H, K, V),
        *adapt.tokens(q, "q", keep),
        *adapt.tokens(k, "k", keep),
        *adapt.tokens(v, "v", keep),
        *(ABSENT if g is None else adapt.tokens(g, "g", keep)),
        *(ABSENT if b is None else adapt.tokens(b, "b", keep)),
        *(ABSENT if w is None else adapt.tokens(w, "w", keep)),
        *state,
        *(scale, HV, o.head_map, Hg != HV, Hb != HV, where, kind, N, o.decay),
        *(ABSENT if A_log is None else adapt.parameter(A_log, "A_log", ((Hg,),), keep)),
        *(ABSENT if dt_bias is None else adapt.parameter(dt_bias, "dt_bias", ((Hg,), (Hg, K)), keep)),
        *(o.lower_bound, o.erase, o.write, o.qk_l2norm),
    )
    return named(Sizes, (B, T, H, K, V, HV, Hg, Hb, N)), packed
