"""The rule as PyTorch operators: gdn2::forward and gdn2::backward, with fake kernels and autograd.

Outside torch.compile, functional transforms and dispatch modes nothing needs the dispatcher, and the same functions are called through
torch.autograd.Function: a tenth of the time, which counts where one token is decoded at a time.
"""

import torch

from gdn2._layout import ABSENT, BACKWARD, FORWARD, GRADIENTS
from gdn2._library import check, load
from gdn2._problem import Inputs, Options, problem
from gdn2.torch import _tensors

_TENSORS = (
    "Tensor q, Tensor k, Tensor v, Tensor? g, Tensor? b, Tensor? w, Tensor? beta, Tensor? h0, Tensor? cu_seqlens, "
    "Tensor? A_log, Tensor? dt_bias"
)
_OPTIONS = "float? scale, int head_map, int decay, float lower_bound, int erase, int write, bool qk_l2norm"
_COUNT = len(Inputs._fields)
_library = load()
_DOUBLE = "gdn2 has no second derivatives: the gradients of its backward pass were asked for"

library = torch.library.Library("gdn2", "DEF")
library.define(f"forward({_TENSORS}, {_OPTIONS}, bool final_state, bool v_first) -> (Tensor, Tensor)")
library.define(f"backward({_TENSORS}, {_OPTIONS}, Tensor? d_o, Tensor? dh_final, bool[] wanted) -> Tensor[]")


def _state_type(q):
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _results(x, final_state, v_first):
    """Uninitialised outputs and final state; the latter empty where it is not wanted, stored as [N, HV, V, K] with v_first."""
    B, T, _, K = x.q.shape
    HV, V = x.v.shape[2:]
    N = B if x.cu_seqlens is None else x.cu_seqlens.shape[0] - 1
    o = x.q.new_empty((B, T, HV, V))
    if not final_state:
        return o, x.q.new_empty(0, dtype=_state_type(x.q))
    h = x.q.new_empty((N, HV, V, K) if v_first else (N, HV, K, V), dtype=_state_type(x.q))
    return o, h.transpose(2, 3) if v_first else h


def forward(*arguments):
    """o and h_final, computed; arguments as the operator gdn2::forward."""
    x, options, keep = Inputs(*arguments[:_COUNT]), Options(*arguments[_COUNT:-2]), []
    _, numbers = problem(_tensors, x, options, keep)
    o, h = _results(x, *arguments[-2:])
    last = _tensors.output(h, "h_final") if arguments[-2] else ABSENT
    packed = FORWARD.packed.pack(
        FORWARD.size, *numbers, *_tensors.output(o, "o"), *last, torch.get_num_threads(), 0, 0, 0
    )
    check(_library.gdn2_forward(packed))
    return o, h


# Inputs that have gradients, in the order of the operator's arguments.
_DIFFERENTIABLE = tuple(name for name in Inputs._fields if name != "cu_seqlens")


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
    """The list that gdn2::backward returns: one tensor for each differentiable input, empty where none was wanted."""
    listed = []
    for name, want in zip(_DIFFERENTIABLE, wanted):
        if not want or getattr(x, name) is None:
            listed.append(x.q.new_empty(0))
        elif name == "beta":
            listed.append((made["db"] + made["dw"]).to(x.beta.dtype))
        else:
            listed.append(made["d" + name])
    return listed


def backward(*arguments):
    """The gradients, computed; arguments as the operator gdn2::backward."""
    x, options, keep = Inputs(*arguments[:_COUNT]), Options(*arguments[_COUNT:-3]), []
    d_o, dh_final, wanted = arguments[-3:]
    _, numbers = problem(_tensors, x, options, keep)
    made = _gradients(x, wanted)
    incoming = (
        *(ABSENT if d_o is None else _tensors.tokens(d_o, "d_o", keep)),
        *(ABSENT if dh_final is None else _tensors.state(dh_final, "dh_final", keep)),
    )
    outgoing = []
    for name in GRADIENTS:
        outgoing += _tensors.output(made[name], name) if name in made else ABSENT
    packed = BACKWARD.packed.pack(BACKWARD.size, *numbers, *incoming, *outgoing, 0, torch.get_num_threads(), 0, 0, 0)
    check(_library.gdn2_backward(packed))
    return _in_order(x, wanted, made)


def _fake_forward(*arguments):
    return _results(Inputs(*arguments[:_COUNT]), *arguments[-2:])


def _fake_backward(*arguments):
    x, wanted = Inputs(*arguments[:_COUNT]), arguments[-1]
    made = _gradients(x, wanted)
    return _in_order(x, wanted, made)


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:_COUNT])
    ctx.options = inputs[_COUNT:-2]
    ctx.set_materialize_grads(False)


def _wanted(ctx):
    return [need for need, name in zip(ctx.needs_input_grad, Inputs._fields) if name != "cu_seqlens"]


def _spread(wanted, gradients, options):
    """Gradients as autograd takes them: one per argument of gdn2::forward."""
    found = [gradient if want else None for gradient, want in zip(gradients, wanted)]
    found.insert(Inputs._fields.index("cu_seqlens"), None)
    return *found, *(None,) * (len(options) + 2)


def _backward(ctx, d_o, dh_final):
    wanted = _wanted(ctx)
    gradients = torch.ops.gdn2.backward.default(*ctx.saved_tensors, *ctx.options, d_o, dh_final, wanted)
    return _spread(wanted, gradients, ctx.options)


def _refuse(ctx, *gradients):
    raise RuntimeError(_DOUBLE)


class Rule(torch.autograd.Function):
    """The operator without the dispatcher."""

    @staticmethod
    def forward(ctx, *arguments):
        _save(ctx, arguments, None)
        return forward(*arguments)

    backward = staticmethod(_backward)


library.impl("forward", forward, "CPU")
library.impl("backward", backward, "CPU")
torch.library.register_fake("gdn2::forward", _fake_forward, lib=library)
torch.library.register_fake("gdn2::backward", _fake_backward, lib=library)
torch.library.register_autograd("gdn2::forward", _backward, setup_context=_save, lib=library)
torch.library.register_autograd("gdn2::backward", _refuse, lib=library)


def _unknown():
    return True


_transforms = getattr(torch._C, "_are_functorch_transforms_active", _unknown)
_modes = getattr(torch._C, "_len_torch_dispatch_stack", _unknown)
_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}


def rule(*arguments):
    """o and h_final, differentiable; arguments as the operator gdn2::forward."""
    if torch.compiler.is_compiling() or _transforms() or _modes() or not _PLAIN.issuperset(map(type, arguments[:_COUNT])):
        return torch.ops.gdn2.forward.default(*arguments)
    return Rule.apply(*arguments)
