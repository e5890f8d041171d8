"""The rule as the PyTorch operators gdn2::forward and gdn2::forward_backward."""

import torch

from gdn2._layout import ABSENT, BACKWARD, FORWARD, GRADIENTS, NO_STATES
from gdn2._library import check, load
from gdn2._problem import Inputs, Options, problem
from gdn2.torch import _tensors
from gdn2.torch._register import Operator, listed, register

_COUNT = len(Inputs._fields)
_library = load()
# Inputs that have gradients, in the order of the operator's arguments.
_DIFFERENTIABLE = tuple(name for name in Inputs._fields if name != "cu_seqlens")


def state_type(x):
    """States are float32, and float64 in a float64 call."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _results(x, final_state, v_first):
    """Uninitialised outputs and final state; the latter empty where it is not wanted, stored as [N, HV, V, K] with v_first."""
    B, T, _, K = x.q.shape
    HV, V = x.v.shape[2:]
    N = B if x.cu_seqlens is None else x.cu_seqlens.shape[0] - 1
    o = x.q.new_empty((B, T, HV, V))
    if not final_state:
        return o, x.q.new_empty(0, dtype=state_type(x.q))
    h = x.q.new_empty((N, HV, V, K) if v_first else (N, HV, K, V), dtype=state_type(x.q))
    return o, h.transpose(2, 3) if v_first else h


def _forward(*arguments):
    x, options, keep = Inputs(*arguments[:_COUNT]), Options(*arguments[_COUNT:-2]), []
    _, head = problem(_tensors, x, options, keep)
    o, h = _results(x, *arguments[-2:])
    last = _tensors.output(h, "h_final") if arguments[-2] else ABSENT
    packed = FORWARD.packed.pack(
        FORWARD.size, head, *_tensors.output(o, "o"), *last, *NO_STATES, 0, torch.get_num_threads(), 0, 0, 0
    )
    check(_library.gdn2_forward(packed))
    return o, h


def _gradients(x, wanted):
    """{name of the library: uninitialised gradient}; the halves of that of beta are kept wide until they are added."""
    made = {}
    for name, want in zip(_DIFFERENTIABLE, wanted):
        value = getattr(x, name)
        if not want or value is None:
            continue
        if name == "beta":
            dtype = torch.float32 if value.dtype.itemsize == 2 else value.dtype
            made["db"], made["dw"] = (value.new_empty(value.shape, dtype=dtype) for _ in range(2))
        else:
            made["d" + name] = value.new_empty(value.shape)
    return made


def _in_order(x, wanted, made):
    if x.beta is not None and "db" in made:
        made["dbeta"] = (made["db"] + made["dw"]).to(x.beta.dtype)
        if x.b is None:
            del made["db"], made["dw"]
    return listed(x.q, wanted, [made.get("d" + name) for name in _DIFFERENTIABLE])


def _backward(*arguments):
    x, options, keep = Inputs(*arguments[:_COUNT]), Options(*arguments[_COUNT:-3]), []
    d_o, dh_final, wanted = arguments[-3:]
    _, head = problem(_tensors, x, options, keep)
    made = _gradients(x, wanted)
    incoming = (
        *(ABSENT if d_o is None else _tensors.tokens(d_o, "d_o", keep)),
        *(ABSENT if dh_final is None else _tensors.state(dh_final, "dh_final", keep)),
    )
    outgoing = []
    for name in GRADIENTS:
        outgoing += _tensors.output(made[name], name) if name in made else ABSENT
    packed = BACKWARD.packed.pack(
        BACKWARD.size, head, *incoming, *outgoing, *NO_STATES, 0, 0, torch.get_num_threads(), 0, 0, 0
    )
    check(_library.gdn2_backward(packed))
    return _in_order(x, wanted, made)


def _fake_forward(*arguments):
    return _results(Inputs(*arguments[:_COUNT]), *arguments[-2:])


def _fake_backward(*arguments):
    x, wanted = Inputs(*arguments[:_COUNT]), arguments[-1]
    return _in_order(x, wanted, _gradients(x, wanted))


# (tensors of Inputs, numbers of Options, final_state, v_first) -> o, h_final.
rule = register(
    Operator(
        name="forward",
        tensors=tuple((name, "Tensor" if name in "qkv" else "Tensor?") for name in Inputs._fields),
        constant=("cu_seqlens",),
        options=(
            *("float? scale", "int head_map", "int decay", "float lower_bound", "int erase", "int write"),
            "bool qk_l2norm",
        ),
        extra=("bool final_state", "bool v_first"),
        results=("o", "h_final"),
        forward=_forward,
        backward=_backward,
        fake=_fake_forward,
        fake_backward=_fake_backward,
    )
)
