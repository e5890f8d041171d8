"""Makes a pair of functions on tensors, forward and backward, one differentiable PyTorch operator.

Outside torch.compile, functional transforms and dispatch modes nothing needs the dispatcher, and the same functions are
called through torch.autograd.Function: a fraction of the time, which counts where one token is decoded at a time.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

library = torch.library.Library("gdn2", "DEF")


def _unknown():
    return True


_transforms = getattr(torch._C, "_are_functorch_transforms_active", _unknown)
_modes = getattr(torch._C, "_len_torch_dispatch_stack", _unknown)
_PLAIN = {torch.Tensor, torch.nn.Parameter, type(None)}


def dispatched(tensors: Sequence[object]) -> bool:
    """Whether a call with these tensors has to go through the dispatcher."""
    return torch.compiler.is_compiling() or _transforms() or _modes() or not _PLAIN.issuperset(map(type, tensors))


def needs_gradient(tensors: Sequence[torch.Tensor | None]) -> bool:
    """Whether autograd has to record a call with these tensors."""
    if torch.is_grad_enabled():
        for x in tensors:
            if x is not None and x.requires_grad:
                return True
    return False


class Operator(NamedTuple):
    """gdn2::<name>(tensors, options, extra) -> results and kept, and its gradient.

    That is gdn2::<name>_backward(tensors, options, kept, gradients of the results, wanted).

    tensors: (name, "Tensor" or "Tensor?"); constant: those without gradient. options: schema of what both need; extra: of
        what the forward alone needs. kept: further results, without gradient, that the backward takes before the gradients.
    forward and backward compute, fake and fake_backward only allocate what they return: fake kernels.
    The backward returns one tensor for each input with a gradient, in order, empty where none is wanted.
    """

    name: str
    tensors: tuple[tuple[str, str], ...]
    constant: tuple[str, ...]
    options: tuple[str, ...]
    extra: tuple[str, ...]
    results: tuple[str, ...]
    kept: tuple[str, ...]
    forward: Callable
    backward: Callable
    fake: Callable
    fake_backward: Callable


def _define(op, backward):
    tensors = [f"{kind} {name}" for name, kind in op.tensors]
    outputs = ", ".join("Tensor" for _ in (*op.results, *op.kept))
    library.define(f"{op.name}({', '.join((*tensors, *op.options, *op.extra))}) -> ({outputs})")
    library.impl(op.name, op.forward, "CPU")
    torch.library.register_fake(f"gdn2::{op.name}", op.fake, lib=library)
    incoming = [*(f"Tensor {name}" for name in op.kept), *(f"Tensor? d{name}" for name in op.results)]
    library.define(f"{backward}({', '.join((*tensors, *op.options, *incoming))}, bool[] wanted) -> Tensor[]")
    library.impl(backward, op.backward, "CPU")
    torch.library.register_fake(f"gdn2::{backward}", op.fake_backward, lib=library)


def register(op: Operator) -> Callable:
    """Defines both operators; the function to call."""
    backward = f"{op.name}_backward"
    _define(op, backward)
    forward_packet, backward_packet = (getattr(torch.ops.gdn2, name).default for name in (op.name, backward))
    count, common, results = len(op.tensors), len(op.tensors) + len(op.options), len(op.results)
    arguments = common + len(op.extra)
    places = [i for i, (name, _) in enumerate(op.tensors) if name not in op.constant]

    def save(ctx, inputs, output):
        kept = output[results:] if op.kept else ()
        ctx.mark_non_differentiable(*kept)
        ctx.save_for_backward(*inputs[:count], *kept)
        ctx.options = inputs[count:common]
        ctx.set_materialize_grads(False)

    def differentiate(ctx, *incoming):
        wanted = [ctx.needs_input_grad[i] for i in places]
        saved = ctx.saved_tensors
        gradients = backward_packet(*saved[:count], *ctx.options, *saved[count:], *incoming[:results], wanted)
        found = [None] * arguments
        for i, want, gradient in zip(places, wanted, gradients):
            found[i] = gradient if want else None
        return tuple(found)

    def refuse(ctx, *incoming):
        raise RuntimeError(f"gdn2 has no second derivatives: the gradients of the backward pass of {op.name} were asked for")

    torch.library.register_autograd(f"gdn2::{op.name}", differentiate, setup_context=save, lib=library)
    torch.library.register_autograd(f"gdn2::{backward}", refuse, lib=library)

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            output = op.forward(*inputs)
            save(ctx, inputs, output)
            return output

        backward = staticmethod(differentiate)

    def call(*inputs):
        if dispatched(inputs[:count]):
            return forward_packet(*inputs)
        return Direct.apply(*inputs) if needs_gradient(inputs[:count]) else op.forward(*inputs)

    return call


def listed(template: torch.Tensor, wanted: Sequence[bool], made: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
    """What a backward operator returns: empty tensors in the place of gradients that are not wanted."""
    return [x if want and x is not None else template.new_empty(0) for want, x in zip(wanted, made)]
