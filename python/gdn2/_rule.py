"""The rule on NumPy arrays: forward and backward."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gdn2 import _arrays
from gdn2._layout import ABSENT, BACKWARD, FORWARD, GRADIENTS, NO_STATES
from gdn2._library import check, load
from gdn2._problem import Inputs, execution, named, options, problem, whole

Array = NDArray
HeadMap = Literal["grouped", "tiled"]
Decay = Literal["log", "softplus", "bounded"]
Gate = Literal["given", "sigmoid", "two_sigmoid"]
Isa = Literal["auto", "generic", "avx2", "avx512", "neon"]

_library = load()
_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)


def run(function, layout, *numbers):
    """Calls the library with an argument struct of these numbers."""
    status = function(layout.packed.pack(layout.size, *numbers))
    if status:
        check(status)


def destination(x, name, shape, inputs):
    """An array of the caller to write into."""
    _arrays.shaped(x, name, shape)
    for other, value in zip(Inputs._fields, inputs):
        in_place = value is x and (name, other) == ("h_out", "h0")
        if value is not None and not in_place and np.may_share_memory(x, value):
            raise ValueError(f"{name} overlaps {other}; an output must not overlap an input")
    return x


def state_type(q):
    """States are float32, and float64 in a float64 call."""
    return _F64 if q.dtype == _F64 else _F32


def longest(cu_seqlens, sizes):
    """Tokens of the longest sequence."""
    return sizes.T if cu_seqlens is None or sizes.N == 0 else int(np.diff(cu_seqlens).max())


def _moments(every, sizes):
    """The shape of snapshots."""
    return sizes.B, sizes.T // max(1, int(every)), sizes.HV, sizes.K, sizes.V


def forward(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None = None,
    b: Array | None = None,
    w: Array | None = None,
    *,
    beta: Array | None = None,
    h0: Array | None = None,
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
    final_state: bool = True,
    snapshots: Array | None = None,
    snapshot_every: int = 0,
    residual: Array | None = None,
    out: Array | None = None,
    h_out: Array | None = None,
    threads: int = 0,
    isa: Isa = "auto",
) -> tuple[Array, Array | None]:
    """Outputs and final state of a gated delta rule.

    Per batch row and head, with the state S [K, V]:

        S <- diag(exp(g)) S;  S <- S + k (w v - S^T (b k))^T;  o = S^T (scale q)

    The gates choose the rule: g, b, w over channels are Gated DeltaNet-2; g over channels with beta is KDA; g and beta per head
    are Gated DeltaNet; beta alone is DeltaNet; g alone is GLA.

    Args:
        q, k: [B, T, H, K].
        v: [B, T, HV, V], HV a multiple of H.
        g: natural logarithm of the decay (or raw, see decay), [B, T, HV or H, K], or [B, T, HV or H] for one number per head.
            None: no decay.
        b: erase gate (or raw, see erase), shapes as g. None: nothing is erased.
        w: write gate (or raw, see write), [B, T, HV, V] or [B, T, HV]. None: 1.
        beta: [B, T, HV] or, where K = V, [B, T, HV, K]: b and w at once.
        h0: initial state [N, HV, K, V] with N = B, or one per sequence with cu_seqlens. None: zeros.
        scale: factor on q. None: K^-1/2.
        cu_seqlens: int32 or int64 [N + 1], where B = 1 holds sequences one behind the other: sequence n is the tokens
            cu_seqlens[n] to cu_seqlens[n + 1] - 1. Tokens beyond the last are of no sequence; their outputs are 0.
        head_map: value head j reads key head j // (HV / H) ("grouped") or j % H ("tiled").
        decay: g is the logarithm ("log"), or raw: -exp(A_log) softplus(g + dt_bias) ("softplus"), or
            lower_bound sigmoid(exp(A_log) (g + dt_bias)) ("bounded").
        A_log: float32, one number per head of g.
        dt_bias: float32, one number or one row of K per head of g. None: 0.
        erase, write: the gates are given, or raw: sigmoid(b), and for b 2 sigmoid(b).
        qk_l2norm: q and k are divided by sqrt(sum of squares + 1e-6).
        final_state: False: the final state is not computed, and None is returned for it.
        snapshots: array [B, T // snapshot_every, HV, K, V] to write states on the way into: moment i is after (i + 1)
            snapshot_every tokens. With cu_seqlens, that of sequence n is moment cu_seqlens[n] // snapshot_every + i; the moments
            that are left over are not written.
        snapshot_every: a multiple of 16.
        residual: float32 array [B, T, HV, V] to write what each token writes to its state into: backward is faster with it.
        out: array to write the outputs into, any strides but those of channels.
        h_out: array to write the final state into; may be h0 itself.
        threads: at most this many; 0: as OpenMP would take.
        isa: an instruction set to force.

    Element types are float32, bfloat16 (of ml_dtypes) and float16, mixed as you like; states, A_log and dt_bias are float32,
    and the arithmetic is. If q is float64, everything must be, and is computed in float64. Any strides are taken as they are;
    only where the channels of a token tensor do not lie one behind the other, or an array is not aligned, it is copied once.

    Returns:
        o [B, T, HV, V] of the element type of q, and the final state [N, HV, K, V] or None.

    Raises:
        ValueError: a shape, stride, offset or option is not what it must be; the message names it. Nothing is written.
        TypeError: an argument is no array, or of an element type that is not supported there.
    """
    x = named(Inputs, (q, k, v, g, b, w, beta, h0, cu_seqlens, A_log, dt_bias))
    keep = []
    sizes, head = problem(_arrays, x, options(scale, head_map, decay, lower_bound, erase, write, qk_l2norm), keep)
    shape = (sizes.B, sizes.T, sizes.HV, sizes.V)
    if out is None:
        o = np.empty(shape, q.dtype)
        written = _arrays.result(o, "o")
    else:
        o = destination(out, "out", shape, x)
        written = _arrays.output(o, "out")
    h_final, last = None, ABSENT
    if final_state:
        shape = (sizes.N, sizes.HV, sizes.K, sizes.V)
        if h_out is None:
            h_final = np.empty(shape, state_type(q))
            last = _arrays.result(h_final, "h_final")
        else:
            h_final = destination(h_out, "h_out", shape, x)
            last = _arrays.state_output(h_final, "h_out")
    on_the_way = (*NO_STATES, whole("snapshot_every", snapshot_every))
    if snapshots is not None:
        destination(snapshots, "snapshots", _moments(snapshot_every, sizes), x)
        on_the_way = (*_arrays.state_output(snapshots, "snapshots"), whole("snapshot_every", snapshot_every))
    left = ABSENT
    if residual is not None:
        destination(residual, "residual", (sizes.B, sizes.T, sizes.HV, sizes.V), x)
        left = _arrays.output(residual, "residual")
    run(_library.gdn2_forward, FORWARD, head, *written, *last, *on_the_way, *left, *execution(threads, isa))
    return o, h_final


def _like(name, x, sizes):
    """Shape and element type of a gradient: those of its input, or of the full gate where that is absent."""
    value = getattr(x, "beta" if x.beta is not None and name in ("b", "w") else name)
    if value is not None:
        # The two halves of dbeta are added before they are rounded.
        narrow = value is x.beta and value.dtype.itemsize == 2
        return value.shape, np.float32 if narrow else value.dtype
    B, T, _, K, V, HV, Hg, Hb, N = sizes
    shapes = {
        "g": (B, T, Hg, K),
        "b": (B, T, Hb, K),
        "w": (B, T, HV, V),
        "h0": (N, HV, K, V),
        "A_log": (Hg,),
        "dt_bias": (Hg, K),
    }
    return shapes[name], state_type(x.q)


def wanted(x, gradients):
    """The gradients to compute: those asked for, or of all inputs that are given."""
    names = ("dq", "dk", "dv", "dg", "db", "dw", "dbeta", "dh0", "dA_log", "ddt_bias")
    if gradients is None:
        return {name for name in names if getattr(x, name[1:]) is not None}
    asked = {gradients} if isinstance(gradients, str) else set(gradients)
    allowed = set(names) - ({"db", "dw"} if x.beta is not None else {"dbeta"})
    if not asked <= allowed:
        raise ValueError(f"gradients has {sorted(asked - allowed)[0]!r}; it may have {', '.join(sorted(allowed))}")
    return asked


def backward(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None = None,
    b: Array | None = None,
    w: Array | None = None,
    *,
    d_o: Array | None = None,
    dh_final: Array | None = None,
    gradients: Iterable[str] | None = None,
    snapshots: Array | None = None,
    snapshot_every: int = 0,
    checkpoint_every: int = 0,
    residual: Array | None = None,
    beta: Array | None = None,
    h0: Array | None = None,
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
    threads: int = 0,
    isa: Isa = "auto",
) -> dict[str, Array]:
    """Gradients of a loss L(o, h_final) of forward with the same inputs.

    Args:
        d_o: [B, T, HV, V], dL/do. None: zeros.
        dh_final: [N, HV, K, V], dL/dh_final. None: zeros.
        gradients: names out of dq, dk, dv, dg, db, dw (or dbeta), dh0, dA_log, ddt_bias. None: of all inputs that are given.
            A gate that is absent may be asked for: the gradient at its neutral value.
        snapshots, snapshot_every: those that forward wrote of the same inputs, float32: the fastest way; 128 is a good number.
            None: the states are computed again.
        checkpoint_every: memory against time, without snapshots: a state is kept every so many chunks of 16 tokens. 0: 8 chunks.
        residual: what forward wrote there of the same inputs. None: computed again. The bits of the gradients do not depend on
            it, nor on the states that are kept.
        Everything else: as forward.

    Returns:
        {name: array} in the shapes and element types of the inputs; that of a gate that is one number per head is the sum
        over its channels, that of what several value heads read the sum over them, and that of a raw input is with respect to
        the raw input.

    Raises:
        As forward.
    """
    x = Inputs(q, k, v, g, b, w, beta, h0, cu_seqlens, A_log, dt_bias)
    asked, keep = wanted(x, gradients), []
    sizes, head = problem(_arrays, x, options(scale, head_map, decay, lower_bound, erase, write, qk_l2norm), keep)
    B, T, _, K, V, HV, _, _, N = sizes
    incoming = []
    for name, value, shape, adapt in (
        ("d_o", d_o, (B, T, HV, V), _arrays.tokens),
        ("dh_final", dh_final, (N, HV, K, V), _arrays.state),
    ):
        incoming += ABSENT if value is None else adapt(_arrays.shaped(value, name, shape), name, keep)
    made, outgoing = {}, []
    for name in GRADIENTS:
        if name in asked or ("dbeta" in asked and name in ("db", "dw")):
            made[name] = np.empty(*_like(name[1:], x, sizes))
            outgoing += _arrays.result(made[name], name)
        else:
            outgoing += ABSENT
    states = (*NO_STATES, whole("snapshot_every", snapshot_every))
    if snapshots is not None:
        _arrays.shaped(snapshots, "snapshots", _moments(snapshot_every, sizes))
        states = (*_arrays.state(snapshots, "snapshots", keep), whole("snapshot_every", snapshot_every))
    every, left = whole("checkpoint_every", checkpoint_every), ABSENT
    if residual is not None:
        left = _arrays.tokens(_arrays.shaped(residual, "residual", (B, T, HV, V)), "residual", keep)
    run(_library.gdn2_backward, BACKWARD, head, *incoming, *outgoing, *states, every, *left, *execution(threads, isa))
    if "dbeta" in asked:
        made["dbeta"] = (made.pop("db") + made.pop("dw")).astype(beta.dtype, copy=False)
    return made
