"""Decode on NumPy arrays."""

import numpy as np

from gdn2 import _arrays
from gdn2._layout import ABSENT, NO_STATES, STEP
from gdn2._library import load
from gdn2._problem import Inputs, axes, drafts, execution, options, problem
from gdn2._rule import Array, Decay, Gate, HeadMap, Isa, destination, longest, run, state_type

_library = load()


def _per_row(adapt, x, name, N, keep):
    """An array with one element for each row: what adapt says of it but its length."""
    *numbers, count = adapt(x, name, keep)
    if count != N:
        raise ValueError(f"{name} has {count} elements; it must have one for each of {N} rows")
    return numbers


def step(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None = None,
    b: Array | None = None,
    w: Array | None = None,
    *,
    state: Array | None = None,
    state_out: Array | None = None,
    slots: Array | None = None,
    reset: Array | None = None,
    each: Array | None = None,
    history: Array | None = None,
    accepted: Array | None = None,
    drafts_by_slot: bool = False,
    beta: Array | None = None,
    scale: float | None = None,
    cu_seqlens: Array | None = None,
    head_map: HeadMap = "grouped",
    decay: Decay = "log",
    A_log: Array | None = None,
    dt_bias: Array | None = None,
    lower_bound: float | None = None,
    erase: Gate = "given",
    write: Gate = "given",
    qk_l2norm: bool = False,
    out: Array | None = None,
    threads: int = 0,
    isa: Isa = "auto",
) -> tuple[Array, Array]:
    """Decode: one or a few new tokens for every row of a batch. A row is a batch row, or a sequence of cu_seqlens; there are N.

    Args:
        state: [N, HV, K, V], or with slots a pool [M, HV, K, V]; float32, bfloat16 or float16, float64 where q is. Overwritten by the new state
            unless state_out is given. None: zeros.
        state_out: where the new state goes; None: `state` itself, or a new array, float32 or
            float64 as q, where that is absent.
        slots: int32 or int64 [N]: the slot of each row, no two alike; -1 skips the row, its outputs are 0.
        reset: bool or uint8 [N]: true starts the row from zeros.
        each: array [N, T, HV, K, V] to write the state after every token into (drafts that may be rejected).
        history: the `each` of an earlier call, [N, L, HV, K, V].
        accepted: int32 or int64 [N]: how many tokens of history hold; the row starts from the state after them, and from
            `state` for 0.
        drafts_by_slot: the first axis of each and history is that of the pool.
        Everything else: as forward.

    Returns:
        o [B, T, HV, V] in the type of q, and the array with the new states.

    Raises:
        As forward.
    """
    x = Inputs(q, k, v, g, b, w, beta, None, cu_seqlens, A_log, dt_bias)
    keep = []
    sizes, head = problem(_arrays, x, options(scale, head_map, decay, lower_bound, erase, write, qk_l2norm), keep)
    N, count = sizes.N, sizes.N
    slot = (0, 0) if slots is None else _per_row(_arrays.indices, slots, "slots", N, keep)
    if slots is not None:
        count = _arrays.array(state if state is not None else state_out, "state", 4).shape[0]
    shape = (count, sizes.HV, sizes.K, sizes.V)
    source = ABSENT if state is None else _arrays.state(_arrays.shaped(state, "state", shape), "state", keep)
    if state_out is None:
        state_out = np.empty(shape, state_type(q)) if state is None else state
    else:
        destination(state_out, "state_out", shape, x)
    o = np.empty(v.shape, q.dtype) if out is None else destination(out, "out", v.shape, x)
    rows, moments = count if drafts_by_slot else N, longest(cu_seqlens, sizes)
    each_numbers = history_numbers = NO_STATES
    if each is not None:
        each_numbers = _arrays.state_output(drafts("each", each, rows, moments, sizes), "each")
    past = 0 if history is None else axes("history", history, "N T HV K V")[1]
    if history is not None:
        history = drafts("history", history, rows, past, sizes)
        history_numbers = _arrays.state(history, "history", keep)
    numbers = (
        head,
        *_arrays.output(o, "out"),
        *source,
        *_arrays.state_output(state_out, "state_out" if state_out is not state else "state"),
        *slot,
        count,
        *((0,) if reset is None else _per_row(_arrays.flags, reset, "reset", N, keep)),
        *each_numbers,
        *history_numbers,
        past,
        *((0, 0) if accepted is None else _per_row(_arrays.indices, accepted, "accepted", N, keep)),
        bool(drafts_by_slot),
        *execution(threads, isa),
    )
    run(_library.gdn2_step, STEP, *numbers)
    return o, state_out
