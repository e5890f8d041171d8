"""The parts around the rule in PyTorch: causal convolution and RMS norm."""

import torch
from torch import Tensor

from gdn2._layout import ABSENT, CONV_BACKWARD, CONV_FORWARD, NORM_BACKWARD, NORM_FORWARD, NORM_GATES
from gdn2._library import check, load
from gdn2._parts_problem import conv as conv_problem
from gdn2._parts_problem import lift, rows, states
from gdn2._parts_problem import norm as norm_problem
from gdn2._problem import choice
from gdn2.torch import _tensors
from gdn2.torch._ops import state_type
from gdn2.torch._register import Operator, listed, register
from gdn2.torch._tensors import allow, require

_library = load()


def _run(function, layout, *numbers):
    check(function(layout.packed.pack(layout.size, *numbers, torch.get_num_threads(), 0, 0, 0)))


def _given(x, name, adapt, view, keep):
    return ABSENT if x is None else adapt(view(x), name, keep)


def _vector(x):
    return x[None, None, None]


def _matrix(x):
    return x[None, None]


def _tokens(x):
    return x[:, :, None]


def _conv_results(x, weight, bias, state, cu_seqlens, silu, final_state):
    B, _, D = x.shape
    y = _tensors.fresh(x, x.shape)
    if not final_state:
        return y, x.new_empty(0)
    N = B if cu_seqlens is None else cu_seqlens.shape[0] - 1
    kind = state_type(x) if state is None else state.dtype
    last = x.new_empty((N, D, weight.shape[1] - 1), dtype=kind)
    return y, last


def _conv(x, weight, bias, state, cu_seqlens, silu, final_state):
    keep = []
    _, head = conv_problem(_tensors, x, weight, bias, state, silu, cu_seqlens, None, None, keep)
    y, last = _conv_results(x, weight, bias, state, cu_seqlens, silu, final_state)
    after = _tensors.output(states(last), "state_final") if final_state else ABSENT
    _run(_library.gdn2_conv_forward, CONV_FORWARD, head, *_tensors.output(lift(y, "y"), "y"), *after)
    return y, last


def _like(wanted, *inputs):
    return [_tensors.fresh(x, x.shape) if want and x is not None else None for want, x in zip(wanted, inputs)]


def _conv_backward(x, weight, bias, state, cu_seqlens, silu, dy, dlast, wanted):
    keep = []
    _, head = conv_problem(_tensors, x, weight, bias, state, silu, cu_seqlens, None, None, keep)
    incoming = (*_given(dy, "dy", _tensors.tokens, _tokens, keep), *_given(dlast, "dstate_final", _tensors.state, states, keep))
    made = _like(wanted, x, weight, bias, state)
    outgoing = []
    for gradient, view in zip(made, (_tokens, _matrix, _vector, states)):
        outgoing += ABSENT if gradient is None else _tensors.output(view(gradient), "gradient")
    _run(_library.gdn2_conv_backward, CONV_BACKWARD, head, *incoming, *outgoing)
    return listed(x, wanted, made)


def _fake_conv_backward(x, weight, bias, state, cu_seqlens, silu, dy, dlast, wanted):
    return listed(x, wanted, _like(wanted, x, weight, bias, state))


_convolve = register(
    Operator(
        name="conv",
        tensors=(("x", "Tensor"), ("weight", "Tensor"), *((name, "Tensor?") for name in ("bias", "state", "cu_seqlens"))),
        constant=("cu_seqlens",),
        options=("bool silu",),
        extra=("bool final_state",),
        results=("y", "state_final"),
        kept=(),
        forward=_conv,
        backward=_conv_backward,
        fake=_conv_results,
        fake_backward=_fake_conv_backward,
    )
)


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    state: Tensor | None = None,
    silu: bool = False,
    cu_seqlens: Tensor | None = None,
    final_state: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Causal depthwise convolution as gdn2.conv, differentiable.

    Args:
        x: [B, T, D].
        weight: [D, W], W from 2 to 4.
        bias: [D].
        state: [N, D, W - 1], the inputs before the first token.
        cu_seqlens: int32 or int64 [N + 1], with B = 1.

    Returns:
        y [B, T, D] in the type of x, and the state after the last token, or None without final_state.
    """
    require(x=x, weight=weight)
    allow(bias=bias, state=state, cu_seqlens=cu_seqlens)
    y, last = _convolve(x, weight, bias, state, cu_seqlens, bool(silu), final_state)
    return y, last if final_state else None


def _norm_result(x, weight, z, gate, plus_one, eps):
    return _tensors.fresh(x, x.shape)


def _norm(x, weight, z, gate, plus_one, eps):
    keep = []
    head = norm_problem(_tensors, x, z, weight, gate, plus_one, eps, keep)
    y = _norm_result(x, weight, z, gate, plus_one, eps)
    _run(_library.gdn2_norm_forward, NORM_FORWARD, head, *_tensors.output(rows(y, "y"), "y"))
    return y


def _norm_backward(x, weight, z, gate, plus_one, eps, dy, wanted):
    keep = []
    head = norm_problem(_tensors, x, z, weight, gate, plus_one, eps, keep)
    made = _like(wanted, x, weight, z)
    dx, dweight, dz = (ABSENT if d is None else _tensors.output(rows(d, "gradient"), "gradient") for d in made)
    incoming = _given(dy, "dy", _tensors.tokens, lambda d: rows(d, "dy"), keep)
    _run(_library.gdn2_norm_backward, NORM_BACKWARD, head, *incoming, *dx, *dz, *dweight)
    return listed(x, wanted, made)


def _fake_norm_backward(x, weight, z, gate, plus_one, eps, dy, wanted):
    return listed(x, wanted, _like(wanted, x, weight, z))


_normalise = register(
    Operator(
        name="norm",
        tensors=(("x", "Tensor"), ("weight", "Tensor?"), ("z", "Tensor?")),
        constant=(),
        options=("int gate", "bool plus_one", "float eps"),
        extra=(),
        results=("y",),
        kept=(),
        forward=_norm,
        backward=_norm_backward,
        fake=_norm_result,
        fake_backward=_fake_norm_backward,
    )
)


def norm(
    x: Tensor,
    weight: Tensor | None = None,
    z: Tensor | None = None,
    *,
    gate: str = "silu",
    plus_one: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """RMS norm of the last axis as gdn2.norm, differentiable: x / sqrt(mean(x^2) + eps) weight gate(z).

    Args:
        x: [..., D] with one to four axes.
        weight: [D]. None: 1. plus_one: 1 + weight takes its place.
        z: as x. None: no gate. gate: "silu" or "sigmoid".
    """
    require(x=x)
    allow(weight=weight, z=z)
    return _normalise(x, weight, z, choice(NORM_GATES, "gate", gate), bool(plus_one), float(eps))
