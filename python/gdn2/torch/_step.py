"""Decode in PyTorch: the operator gdn2::step, which changes a state in place and has no gradient."""

import torch
from torch import Tensor

from gdn2._layout import DECAYS, GATES, HEAD_MAPS, NO_STATES, STEP
from gdn2._library import check, load
from gdn2._problem import Inputs, Options, choice, expect, problem
from gdn2.torch import _tensors
from gdn2.torch._register import dispatched, library, needs_gradient

_library = load()
_COUNT = 10
_SCHEMA = (
    "step(Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? b, Tensor? w, Tensor? beta, Tensor? cu_seqlens, Tensor? A_log, "
    "Tensor? dt_bias, float? scale, int head_map, int decay, float lower_bound, int erase, int write, bool qk_l2norm, "
    "Tensor(a!) state, Tensor? slots) -> Tensor"
)


def _inputs(arguments):
    return Inputs(*arguments[:7], None, *arguments[7:_COUNT])


def _result(x):
    return x.q.new_empty((*x.q.shape[:2], *x.v.shape[2:]))


def _step(*arguments):
    x, options, keep = _inputs(arguments), Options(*arguments[_COUNT:-2]), []
    state, slots = arguments[-2:]
    sizes, head = problem(_tensors, x, options, keep)
    expect("state", state, (sizes.N if slots is None else state.shape[0], sizes.HV, sizes.K, sizes.V))
    where, kind, rows = (0, 0, sizes.N) if slots is None else _tensors.indices(slots, "slots", keep)
    if rows != sizes.N:
        raise ValueError(f"slots has {rows} elements; it must have one for each of {sizes.N} rows")
    o = _result(x)
    place = _tensors.place(state, "state")
    packed = STEP.packed.pack(
        *(STEP.size, head, *_tensors.output(o, "o"), *place, *place, where, kind, state.shape[0], 0),
        *(*NO_STATES, *NO_STATES, 0, 0, 0, 0, torch.get_num_threads(), 0, 0, 0),
    )
    check(_library.gdn2_step(packed))
    return o


library.define(_SCHEMA)
library.impl("step", _step, "CPU")
torch.library.register_fake("gdn2::step", lambda *arguments: _result(_inputs(arguments)), lib=library)


def run(*arguments) -> Tensor:
    """o; arguments as the operator gdn2::step. The state is changed."""
    if dispatched((*arguments[:_COUNT], arguments[-2])):
        return torch.ops.gdn2.step.default(*arguments)
    o = _step(*arguments)
    torch.autograd.graph.increment_version(arguments[-2])
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
    slots: Tensor | None = None,
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
        state: [N, HV, K, V] with any strides, float32, bfloat16 or float16; with slots a pool [M, HV, K, V].
        slots: int32 or int64 [N]: the slot of each row, no two alike; -1 skips the row.
        Everything else: as gdn2.forward.

    Returns:
        o [B, T, HV, V] in the type of q.

    Raises:
        RuntimeError: a gradient would be needed; use torch.no_grad().
        ValueError, TypeError: as gdn2.step.
    """
    tensors = (q, k, v, g, b, w, beta, cu_seqlens, A_log, dt_bias)
    if needs_gradient((*tensors, state)):
        raise RuntimeError("gdn2.torch.step has no gradient; call it under torch.no_grad(), or use one of the chunk functions")
    bound = 0.0 if lower_bound is None else float(lower_bound)
    numbers = (choice(HEAD_MAPS, "head_map", head_map), choice(DECAYS, "decay", decay), bound)
    gates = (choice(GATES, "erase", erase), choice(GATES, "write", write))
    return run(*tensors, None if scale is None else float(scale), *numbers, *gates, bool(qk_l2norm), state, slots)
