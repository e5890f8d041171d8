"""The problems of the convolution and of the norm, for arrays and torch tensors alike; see _problem.py."""

from gdn2._layout import ABSENT, CONV_PROBLEM, NORM_PROBLEM
from gdn2._problem import axes, expect, sequences


def lift(x, name):
    """[B, T, D] as [B, T, 1, D]."""
    axes(name, x, "B T D")
    return x[:, :, None]


def states(x):
    """[N, D, W - 1] as [N, 1, D, W - 1]."""
    return x[:, None]


def conv(adapt, x, weight, bias, state, silu, cu_seqlens, slots, fresh, keep):
    """((B, T, D, W, N, states), a gdn2_conv_problem as bytes)."""
    B, T, D = axes("x", x, "B T D")
    axes("weight", weight, "D W")
    W = weight.shape[1]
    expect("weight", weight, (D, W))
    where, kind, N = (0, 0, B) if cu_seqlens is None else sequences(adapt, cu_seqlens, keep)
    place, type_of_slots, count = 0, 0, N
    if slots is not None:
        place, type_of_slots, n = adapt.indices(slots, "slots", keep)
        if n != N or state is None:
            raise ValueError(f"slots has {n} elements; it must have one for each of {N} sequences, and state must be given")
        count = axes("state", state, "slots D W-1")[0]
    started, n = (0, N) if fresh is None else adapt.flags(fresh, "fresh", keep)
    if n != N:
        raise ValueError(f"fresh has {n} elements; it must have one for each of {N} sequences")
    if state is not None:
        expect("state", state, (count, D, W - 1))
    if bias is not None:
        expect("bias", bias, (D,))
    packed = CONV_PROBLEM.packed.pack(
        *(B, T, D, W),
        *adapt.tokens(lift(x, "x"), "x", keep),
        *adapt.state(weight[None, None], "weight", keep),
        *(ABSENT if bias is None else adapt.tokens(bias[None, None, None], "bias", keep)),
        *(ABSENT if state is None else adapt.state(states(state), "state", keep)),
        *(silu, where, kind, N, place, type_of_slots, count if slots is not None else 0, started),
    )
    return (B, T, D, W, N, count), packed


def rows(x, name):
    """[..., D] with one to four axes as [B, T, H, D]."""
    shape = getattr(x, "shape", None)
    if shape is None:
        raise TypeError(f"{name} is of type {type(x).__name__}; it must be an array")
    if not 1 <= len(shape) <= 4:
        raise ValueError(f"{name} has shape {tuple(shape)}; it must have from 1 to 4 axes")
    return x[(None,) * (4 - len(shape))] if len(shape) < 4 else x


def norm(adapt, x, z, weight, gate, plus_one, eps, keep):
    """A gdn2_norm_problem as bytes."""
    wide = rows(x, "x")
    if eps == 0:  # the library's sign of its default
        raise ValueError(f"eps is {eps}; it must be finite and above 0")
    D = wide.shape[3]
    if z is not None:
        expect("z", z, x.shape)
    if weight is not None:
        expect("weight", weight, (D,))
    return NORM_PROBLEM.packed.pack(
        *wide.shape,
        *adapt.tokens(wide, "x", keep),
        *(ABSENT if z is None else adapt.tokens(rows(z, "z"), "z", keep)),
        *(ABSENT if weight is None else adapt.tokens(weight[None, None, None], "weight", keep)),
        *(gate, plus_one, eps),
    )
