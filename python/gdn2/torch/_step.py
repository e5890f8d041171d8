"""Decode in PyTorch: the operator gdn2::step, which changes states in place and has no gradient."""

from typing import NamedTuple

import torch
from torch import Tensor

from gdn2._layout import DECAYS, GATES, HEAD_MAPS, NO_STATES, STEP
from gdn2._library import check, load
from gdn2._problem import Inputs, Options, axes, choice, drafts, expect, problem
from gdn2.torch import _tensors
from gdn2.torch._register import dispatched, library, needs_gradient

_library = load()
_COUNT = 10
_SCHEMA = (
    "step(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? b, Tensor? w, Tensor? beta, Tensor? cu_seqlens, Tensor? A_log, "
    "Tensor? dt_bias, float? scale, int head_map, int decay, float lower_bound, int erase, int write, bool qk_l2norm, "
    "Tensor(a!) state, Tensor(b!)? state_out, Tensor? slots, Tensor? reset, Tensor(c!)? each, Tensor? history, "
    "Tensor? accepted, bool drafts_by_slot) -> Tensor"
)


class States(NamedTuple):
    """The last arguments of the operator: where the states of the rows are and go."""

    state: Tensor
    state_out: Tensor | None = None
    slots: Tensor | None = None
    reset: Tensor | None = None
    each: Tensor | None = None
    history: Tensor | None = None
    accepted: Tensor | None = None
    drafts_by_slot: bool = False


_OPTIONS = slice(_COUNT, -len(States._fields))
_STATES = slice(-len(States._fields), None)


def _inputs(arguments):
    return Inputs(*arguments[:7], None, *arguments[7:_COUNT])


def _result(x):
    return x.q.new_empty((*x.q.shape[:2], *x.v.shape[2:]))


def _longest(x):
    """Tokens of the longest row."""
    few = x.cu_seqlens is None or x.cu_seqlens.shape[0] < 2
    return x.q.shape[1] if few else int(x.cu_seqlens.diff().max())


def _per_row(x, name, rows, adapt, keep, absent):
    """What adapt says of a tensor with one element for each row, but its length."""
    if x is None:
        return absent
    *numbers, count = adapt(x, name, keep)
    if count != rows:
        raise ValueError(f"{name} has {count} elements; it must have one for each of {rows} rows")
    return numbers


def _drafts(x, s, sizes, keep):
    """The numbers of each, history, its length, accepted and drafts_by_slot."""
    rows = s.state.shape[0] if s.drafts_by_slot else sizes.N
    each = history = NO_STATES
    if s.each is not None:
        each = _tensors.place(drafts("each", s.each, rows, _longest(x), sizes), "each")
    past = 0 if s.history is None else axes("history", s.history, "N T HV K V")[1]
    if s.history is not None:
        history = _tensors.state(drafts("history", s.history, rows, past, sizes), "history", keep)
    accepted = _per_row(s.accepted, "accepted", sizes.N, _tensors.indices, keep, (0, 0))
    return *each, *history, past, *accepted, s.drafts_by_slot


def _step(*arguments):
    x, options, s, keep = _inputs(arguments), Options(*arguments[_OPTIONS]), States(*arguments[_STATES]), []
    sizes, head = problem(_tensors, x, options, keep)
    shape = (sizes.N if s.slots is None else s.state.shape[0], sizes.HV, sizes.K, sizes.V)
    expect("state", s.state, shape)
    source = place = _tensors.place(s.state, "state")
    if s.state_out is not None:
        expect("state_out", s.state_out, shape)
        place = _tensors.place(s.state_out, "state_out")
    slots = _per_row(s.slots, "slots", sizes.N, _tensors.indices, keep, (0, 0))
    reset = _per_row(s.reset, "reset", sizes.N, _tensors.flags, keep, (0,))
    o = _result(x)
    packed = STEP.packed.pack(
        *(STEP.size, head, *_tensors.output(o, "o"), *source, *place, *slots, shape[0], *reset),
        *(*_drafts(x, s, sizes, keep), torch.get_num_threads(), 0, 0, 0),
    )
    check(_library.gdn2_step(packed))
    return o


library.define(_SCHEMA)
library.impl("step", _step, "CPU")
torch.library.register_fake("gdn2::step", lambda *arguments: _result(_inputs(arguments)), lib=library)


def run(*arguments) -> Tensor:
    """o; arguments as the operator gdn2::step. States are changed."""
    s = States(*arguments[_STATES])
    if dispatched((*arguments[:_COUNT], *s[:-1])):
        return torch.ops.gdn2.step.default(*arguments)
    o = _step(*arguments)
    torch.autograd.graph.increment_version(s.state if s.state_out is None else s.state_out)
    if s.each is not None:
        torch.autograd.graph.increment_version(s.each)
    return o


def step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor | None = None,
    b: Tensor | None = None,
    w: Tensor | None = None,
    *,
    state: Tensor,
    state_out: Tensor | None = None,
    slots: Tensor | None = None,
    reset: Tensor | None = None,
    each: Tensor | None = None,
    history: Tensor | None = None,
    accepted: Tensor | None = None,
    drafts_by_slot: bool = False,
    beta: Tensor | None = None,
    scale: float | None = None,
    cu_seqlens: Tensor | None = None,
    head_map: str = "grouped",
    decay: str = "log",
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    lower_bound: float | None = None,
    erase: str = "given",
    write: str = "given",
    qk_l2norm: bool = False,
) -> Tensor:
    """Decode, as gdn2.step: one or a few new tokens for every row of a batch; the state is changed in place. No gradients.

    Args:
        state: [N, HV, K, V] with any strides, float32, bfloat16 or float16, float64 where q is; with slots a pool
            [M, HV, K, V].
        state_out: as state; where the new states go instead, and state stays as it is.
        slots: int32 or int64 [N]: the slot of each row, no two alike; -1 skips the row.
        reset: bool or uint8 [N]: true starts the row from zeros.
        each: [N, T, HV, K, V], written: the state after every token (drafts that may be rejected).
        history: the `each` of an earlier call, [N, L, HV, K, V]; may be `each` itself.
        accepted: int32 or int64 [N]: how many tokens of history hold; the row starts from the state after them, and from
            `state` for 0.
        drafts_by_slot: the first axis of each and history is that of the pool.
        Everything else: as gdn2.forward.

    Returns:
        o [B, T, HV, V] in the type of q.

    Raises:
        RuntimeError: a gradient would be needed; use torch.no_grad().
        ValueError, TypeError: as gdn2.step.
    """
    _tensors.require(q=q, k=k, v=v, state=state)
    _tensors.allow(g=g, b=b, w=w, beta=beta, cu_seqlens=cu_seqlens, A_log=A_log, dt_bias=dt_bias)
    _tensors.allow(state_out=state_out, slots=slots, reset=reset, each=each, history=history, accepted=accepted)
    tensors = (q, k, v, g, b, w, beta, cu_seqlens, A_log, dt_bias)
    s = States(state, state_out, slots, reset, each, history, accepted, bool(drafts_by_slot))
    if needs_gradient((*tensors, *s[:-1])):
        raise RuntimeError("gdn2.torch.step has no gradient; call it under torch.no_grad(), or use one of the chunk functions")
    bound = 0.0 if lower_bound is None else float(lower_bound)
    numbers = (choice(HEAD_MAPS, "head_map", head_map), choice(DECAYS, "decay", decay), bound)
    gates = (choice(GATES, "erase", erase), choice(GATES, "write", write))
    return run(*tensors, None if scale is None else float(scale), *numbers, *gates, bool(qk_l2norm), *s)
