"""The parts around the rule on NumPy arrays: causal convolution and RMS norm."""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from gdn2 import _arrays
from gdn2._layout import ABSENT, CONV_BACKWARD, CONV_FORWARD, NORM_BACKWARD, NORM_FORWARD, NORM_GATES
from gdn2._library import load
from gdn2._parts_problem import conv as conv_problem
from gdn2._parts_problem import lift, rows, states
from gdn2._parts_problem import norm as norm_problem
from gdn2._problem import choice, execution
from gdn2._rule import Array, Isa, run, state_type

_library = load()


def _asked(gradients, given):
    """Names of gradients: those asked for, or of the inputs that are given ({name: input})."""
    if gradients is None:
        return [name for name, value in given.items() if value is not None]
    asked = [gradients] if isinstance(gradients, str) else list(gradients)
    for name in asked:
        if name not in given or given[name] is None and name == "dz":
            allowed = (other for other, value in given.items() if other != "dz" or value is not None)
            raise ValueError(f"gradients has {name!r}; it may have {', '.join(allowed)}{' (dz needs z)' * (name == 'dz')}")
    return asked


def _incoming(x, name, shape, view, adapt, keep):
    return ABSENT if x is None else adapt(view(_arrays.shaped(x, name, shape)), name, keep)


def conv(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    state: Array | None = None,
    silu: bool = False,
    cu_seqlens: Array | None = None,
    slots: Array | None = None,
    fresh: Array | None = None,
    final_state: bool = True,
    out: Array | None = None,
    state_out: Array | None = None,
    threads: int = 0,
    isa: Isa = "auto",
) -> tuple[Array, Array | None]:
    """Causal depthwise convolution, of whole sequences or of a few new tokens.

        z_t = bias + sum over j < W of weight[:, j] x_{t - (W - 1) + j};  y = z, or z sigmoid(z) with silu

    Args:
        x: [B, T, D].
        weight: [D, W], W from 2 to 4; the last tap meets the token itself.
        bias: [D]. None: 0.
        state: [N, D, W - 1], the inputs before the first token, oldest first. None: zeros.
        cu_seqlens: int32 or int64 [N + 1], as in forward.
        slots: int32 or int64 [N]: `state` is a pool, sequence n has the state slots[n]; -1 skips the sequence.
        fresh: bool or uint8 [N]: true starts the sequence from zeros.
        final_state: False: no state is returned.
        out: array for y; x may not be given. state_out: array for the state; may be `state` itself.
        threads, isa: as in forward.

    Returns:
        y [B, T, D] in the type of x, and the state after the last token in the shape and type of `state`
        (float32 where that is absent), or None. With slots, give state_out (usually state): only named slots are written.

    Raises:
        As forward.
    """
    keep = []
    (B, T, D, W, _, count), head = conv_problem(_arrays, x, weight, bias, state, bool(silu), cu_seqlens, slots, fresh, keep)
    if slots is not None and final_state and state_out is None:
        raise ValueError("state_out is None; with slots it must be the pool to write into, or final_state False")
    y = np.empty((B, T, D), x.dtype) if out is None else _arrays.shaped(out, "out", (B, T, D))
    after, last = None, ABSENT
    if final_state:
        shape = (count, D, W - 1)
        kind = state_type(x) if state is None else state.dtype
        after = np.empty(shape, kind) if state_out is None else _arrays.shaped(state_out, "state_out", shape)
        last = _arrays.state_output(states(after), "state_out")
    numbers = (head, *_arrays.output(lift(y, "out"), "out"), *last, *execution(threads, isa))
    run(_library.gdn2_conv_forward, CONV_FORWARD, *numbers)
    return y, after


def conv_backward(
    x: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    dy: Array | None = None,
    dstate_final: Array | None = None,
    gradients: Iterable[str] | None = None,
    state: Array | None = None,
    silu: bool = False,
    cu_seqlens: Array | None = None,
    threads: int = 0,
    isa: Isa = "auto",
) -> dict[str, Array]:
    """Gradients of a loss L(y, state_final) of conv with the same inputs.

    Args:
        dy: [B, T, D]. None: zeros.
        dstate_final: [N, D, W - 1]. None: zeros.
        gradients: names out of dx, dweight, dbias, dstate. None: of all inputs that are given.
        Everything else: as conv.

    Returns:
        {name: array} in the shapes and types of the inputs (float32 for an input that is absent).
    """
    keep = []
    (B, T, D, W, N, _), head = conv_problem(_arrays, x, weight, bias, state, bool(silu), cu_seqlens, None, None, keep)
    given = {"dx": x, "dweight": weight, "dbias": bias, "dstate": state}
    shapes = {"dx": (B, T, D), "dweight": (D, W), "dbias": (D,), "dstate": (N, D, W - 1)}
    views = {
        "dx": lambda a: a[:, :, None],
        "dweight": lambda a: a[None, None],
        "dbias": lambda a: a[None, None, None],
        "dstate": states,
    }
    asked = _asked(gradients, given)
    made = {name: np.empty(shapes[name], state_type(x) if given[name] is None else given[name].dtype) for name in asked}
    outgoing = []
    for name in given:
        outgoing += _arrays.state_output(views[name](made[name]), name) if name in made else ABSENT
    numbers = (
        head,
        *_incoming(dy, "dy", (B, T, D), views["dx"], _arrays.tokens, keep),
        *_incoming(dstate_final, "dstate_final", (N, D, W - 1), states, _arrays.state, keep),
        *outgoing,
        *execution(threads, isa),
    )
    run(_library.gdn2_conv_backward, CONV_BACKWARD, *numbers)
    return made


def norm(
    x: Array,
    weight: Array | None = None,
    z: Array | None = None,
    *,
    gate: Literal["silu", "sigmoid"] = "silu",
    plus_one: bool = False,
    eps: float = 1e-6,
    out: Array | None = None,
    threads: int = 0,
    isa: Isa = "auto",
) -> Array:
    """RMS norm of the last axis, with or without a gate: x / sqrt(mean(x^2) + eps) weight gate(z).

    Args:
        x: [..., D] with one to four axes.
        weight: [D]. None: 1.
        z: as x; gate(z) = z sigmoid(z) ("silu") or sigmoid(z) ("sigmoid"). None: no gate.
        plus_one: 1 + weight takes the place of weight.
        eps: above 0.
        out: array for the result; may be x or z itself.
        threads, isa: as in forward.

    Returns:
        y in the shape and type of x.

    Raises:
        As forward.
    """
    keep = []
    head = norm_problem(_arrays, x, z, weight, choice(NORM_GATES, "gate", gate), bool(plus_one), float(eps), keep)
    y = np.empty(x.shape, x.dtype) if out is None else _arrays.shaped(out, "out", x.shape)
    run(_library.gdn2_norm_forward, NORM_FORWARD, head, *_arrays.output(rows(y, "out"), "out"), *execution(threads, isa))
    return y


def norm_backward(
    x: Array,
    weight: Array | None = None,
    z: Array | None = None,
    *,
    dy: Array,
    gradients: Iterable[str] | None = None,
    gate: Literal["silu", "sigmoid"] = "silu",
    plus_one: bool = False,
    eps: float = 1e-6,
    threads: int = 0,
    isa: Isa = "auto",
) -> dict[str, Array]:
    """Gradients of a loss L(y) of norm with the same inputs.

    Args:
        dy: as x.
        gradients: names out of dx, dz, dweight. None: of all inputs that are given.
        Everything else: as norm.

    Returns:
        {name: array} in the shapes and types of the inputs.
    """
    keep = []
    head = norm_problem(_arrays, x, z, weight, choice(NORM_GATES, "gate", gate), bool(plus_one), float(eps), keep)
    given = {"dx": x, "dz": z, "dweight": weight}
    asked = _asked(gradients, given)
    made = {}
    for name in asked:
        like = given[name]
        made[name] = np.empty((x.shape[-1],), state_type(x)) if like is None else np.empty(like.shape, like.dtype)
    outgoing = []
    for name in given:
        outgoing += _arrays.output(rows(made[name], name), name) if name in made else ABSENT
    incoming = _arrays.tokens(rows(_arrays.shaped(dy, "dy", x.shape), "dy"), "dy", keep)
    run(_library.gdn2_norm_backward, NORM_BACKWARD, head, *incoming, *outgoing, *execution(threads, isa))
    return made
