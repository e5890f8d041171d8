"""The rule as the PyTorch operators gdn2::forward and gdn2::forward_backward."""

import torch

from gdn2._layout import ABSENT, BACKWARD, FORWARD, GRADIENTS, KEEP_EVERY, NO_STATES
from gdn2._library import check, load
from gdn2._problem import Inputs, Options, expect, named, problem
from gdn2.torch import _tensors
from gdn2.torch._register import Operator, listed, needs_gradient, register

_COUNT = len(Inputs._fields)
_EXTRA = 5  # final_state, v_first, moments, training, every
_library = load()
# Inputs that have gradients, in the order of the operator's arguments.
_DIFFERENTIABLE = tuple(name for name in Inputs._fields if name != "cu_seqlens")


def state_type(x):
    """States are float32, and float64 in a float64 call."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _results(x, final_state, v_first, moments, training, every):
    """Uninitialised o, final state, snapshots [B, moments, HV, K, V] and, empty unless training, the residual [B, T, HV, V].

    The final state is empty where it is not wanted, and stored as [N, HV, V, K] with v_first. every: tokens between snapshots;
    0: nothing is kept.
    """
    B, T, _, K = x.q.shape
    HV, V = x.v.shape[2:]
    N = B if x.cu_seqlens is None else x.cu_seqlens.shape[0] - 1
    o = _tensors.fresh(x.q, (B, T, HV, V))
    if every:
        kept = (
            _tensors.fresh(x.q, (B, moments, HV, K, V), state_type(x.q)),
            _tensors.fresh(x.q, (B, T, HV, V) if training else (0,), torch.float32),
        )
    else:
        # Nothing is kept: what takes least time to make.
        kept = x.q.new_empty(0), x.q.new_empty(0)
    if not final_state:
        return o, x.q.new_empty(0, dtype=state_type(x.q)), *kept
    h = x.q.new_empty((N, HV, V, K) if v_first else (N, HV, K, V), dtype=state_type(x.q))
    return o, h.transpose(2, 3) if v_first else h, *kept


def _kept(sizes, snapshots, every):
    """The numbers of snapshots in an argument struct: room for one state after every so many tokens, or for none."""
    if snapshots.numel() == 0:
        return *NO_STATES, 0
    expect("snapshots", snapshots, (sizes.B, sizes.T // every, sizes.HV, sizes.K, sizes.V))
    return *_tensors.states(snapshots, "snapshots"), every


def _residual(sizes, residual, adapt):
    if residual.numel() == 0:
        return ABSENT
    expect("residual", residual, (sizes.B, sizes.T, sizes.HV, sizes.V))
    return adapt(residual, "residual")


def _forward(*arguments):
    x, options, keep = named(Inputs, arguments[:_COUNT]), named(Options, arguments[_COUNT:-_EXTRA]), []
    sizes, head = problem(_tensors, x, options, keep)
    o, h, snapshots, residual = _results(x, *arguments[-_EXTRA:])
    last = _tensors.output(h, "h_final") if arguments[-_EXTRA] else ABSENT
    states = *_kept(sizes, snapshots, arguments[-1]), *_residual(sizes, residual, _tensors.output)
    packed = FORWARD.packed.pack(
        FORWARD.size, head, *_tensors.output(o, "o"), *last, *states, torch.get_num_threads(), 0, 0, 0
    )
    check(_library.gdn2_forward(packed))
    return o, h, snapshots, residual


def _gradients(x, wanted):
    """{name of the library: uninitialised gradient}; the halves of that of beta are kept wide until they are added."""
    made = {}
    for name, want in zip(_DIFFERENTIABLE, wanted):
        value = getattr(x, name)
        if not want or value is None:
            continue
        if name == "beta":
            dtype = torch.float32 if value.dtype.itemsize == 2 else value.dtype
            made["db"], made["dw"] = (_tensors.fresh(value, value.shape, dtype) for _ in range(2))
        else:
            made["d" + name] = _tensors.fresh(value, value.shape)
    return made


def _in_order(x, wanted, made):
    if x.beta is not None and "db" in made:
        made["dbeta"] = (made["db"] + made["dw"]).to(x.beta.dtype)
        if x.b is None:
            del made["db"], made["dw"]
    return listed(x.q, wanted, [made.get("d" + name) for name in _DIFFERENTIABLE])


def _backward(*arguments):
    x, options, keep = Inputs(*arguments[:_COUNT]), Options(*arguments[_COUNT:-5]), []
    snapshots, residual, d_o, dh_final, wanted = arguments[-5:]
    sizes, head = problem(_tensors, x, options, keep)
    made = _gradients(x, wanted)
    incoming = (
        *(ABSENT if d_o is None else _tensors.tokens(d_o, "d_o", keep)),
        # Empty, as the final state was, where that was not wanted.
        *(ABSENT if dh_final is None or dh_final.numel() == 0 else _tensors.state(dh_final, "dh_final", keep)),
    )
    outgoing = []
    for name in GRADIENTS:
        outgoing += _tensors.output(made[name], name) if name in made else ABSENT
    states = *_kept(sizes, snapshots, KEEP_EVERY), 0, *_residual(sizes, residual, lambda x, name: _tensors.tokens(x, name, keep))
    packed = BACKWARD.packed.pack(BACKWARD.size, head, *incoming, *outgoing, *states, torch.get_num_threads(), 0, 0, 0)
    check(_library.gdn2_backward(packed))
    return _in_order(x, wanted, made)


def _fake_forward(*arguments):
    return _results(Inputs(*arguments[:_COUNT]), *arguments[-_EXTRA:])


def _fake_backward(*arguments):
    x, wanted = Inputs(*arguments[:_COUNT]), arguments[-1]
    return _in_order(x, wanted, _gradients(x, wanted))


_rule = register(
    Operator(
        name="forward",
        tensors=tuple((name, "Tensor" if name in "qkv" else "Tensor?") for name in Inputs._fields),
        constant=("cu_seqlens",),
        options=(
            *("float? scale", "int head_map", "int decay", "float lower_bound", "int erase", "int write"),
            "bool qk_l2norm",
        ),
        extra=("bool final_state", "bool v_first", "SymInt moments", "bool training", "int every"),
        results=("o", "h_final"),
        kept=("snapshots", "residual"),
        forward=_forward,
        backward=_backward,
        fake=_fake_forward,
        fake_backward=_fake_backward,
    )
)


def _left(x):
    """What the forward leaves to the backward: how many states of each batch row, the residual or not, tokens between states."""
    if not needs_gradient(x) or x.q.dtype == torch.float64 or x.q.dim() != 4:
        return 0, False, 0
    return x.q.shape[1] // KEEP_EVERY, True, KEEP_EVERY


def rule(*arguments):
    """(tensors of Inputs, numbers of Options, final_state, v_first) -> o, h_final."""
    return _rule(*arguments, *_left(named(Inputs, arguments[:_COUNT])))[:2]


def rule_with_states(*arguments, every):
    """The same and the states after every so many tokens, [B, T // every, HV, K, V], as gdn2_forward has them. No gradients."""
    return _rule(*arguments, Inputs(*arguments[:_COUNT]).q.shape[1] // every, False, every)[:3]
