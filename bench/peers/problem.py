"""The inputs that every peer gets, the float64 reference, and the interface of a peer."""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests" / "python"))
from token_loop import RULES, forward, gradients, relative_error, sample  # noqa: E402

# Useful operations for one token and head, in units of K V; the same count as `gdn2 bench`.
WORK = {"forward": 6, "train": 22, "decode": 6}


@dataclass(frozen=True)
class Shape:
    B: int = 1
    T: int = 4096
    H: int = 6
    K: int = 128
    V: int = 128

    def __str__(self):
        return f"B={self.B} T={self.T} H={self.H} K={self.K} V={self.V}"


def inputs(rule, shape):
    """float32 arrays like a trained layer's, without an initial state; do is the gradient by o."""
    x = sample(rule, B=shape.B, T=shape.T, H=shape.H, K=shape.K, V=shape.V)
    x["q"] /= np.linalg.norm(x["q"], axis=-1, keepdims=True)
    return {name: np.ascontiguousarray(value) for name, value in x.items() if name not in ("h0", "dh_final")}


def decode_inputs(rule, shape):
    """One token of every row, and `pool`, the states of more rows than there are; `slot` tells which of them is whose.

    For GDN also `raw`: what a layer's projections give, of which q, k, g and beta are made: q and k not normalised, a and b of
    the decay -exp(A_log) softplus(a + dt_bias) and of sigmoid(b).
    """
    x = inputs(rule, shape)
    r = np.random.default_rng(1)
    B, H = shape.B, shape.H
    slots = B + B // 4 + 1
    x["pool"] = r.standard_normal((slots, H, shape.K, shape.V), np.float32)
    x["slot"] = r.permutation(slots)[:B].astype(np.int32)
    if rule == "gdn":
        A_log, dt_bias = r.uniform(-1, 1, (2, H))
        a = np.log(np.expm1(-x["g"] / np.exp(A_log))) - dt_bias
        b = np.log(x["beta"] / (1 - x["beta"]))
        longer = lambda name: x[name] * r.uniform(0.5, 8, (B, 1, H, 1))
        raw = {"q": longer("q"), "k": longer("k"), "v": x["v"], "a": a, "b": b, "A_log": A_log, "dt_bias": dt_bias}
        x["raw"] = {name: np.ascontiguousarray(value, np.float32) for name, value in raw.items()}
    return x


def decode_reference(x, rule):
    """o and the rows' new states, in float64."""
    tokens = {name: x[name] for name in ("q", "k", "v", *RULES[rule])}
    found = forward(tokens | {"h0": x["pool"][x["slot"]]}, rule)[0]
    return {"o": found["o"], "state": found["h_final"]}


def reference(x, rule, train):
    """o, or the gradients by every input, in float64."""
    if not train:
        return {"o": forward(x, rule)[0]["o"]}
    names = ["dq", "dk", "dv"] + ["d" + gate for gate in RULES[rule]]
    found = gradients(x, rule)
    return {name: found[name] for name in names}


def worst_error(found, wanted):
    """The largest relative L2 error over the arrays, and where it is."""
    errors = {name: relative_error(np.asarray(found[name], np.float64), value) for name, value in wanted.items()}
    for name, value in wanted.items():
        assert np.sqrt(np.mean(np.square(value))) > 1e-6, f"the reference of {name} is nearly zero and would prove nothing"
    name = max(errors, key=errors.get)
    return errors[name], name


class Peer:
    """One implementation of one rule. A module peer_NAME.py makes them in its function peers().

    start() converts the inputs to what the implementation wants; that is not timed. forward() and train() are timed, and must
    have finished their work when they return; output() and gradients() turn what they returned into arrays [B, T, H, ...].
    For decode the three are start_decode(), decode() and decoded(), which gives o and the rows' states [B, H, K, V].
    """

    name = rule = None
    dtype = "f32"
    ops = ("forward",)
    raw = False  # decode: gates and L2 norm are made in the call, for libgdn2 too
    tolerance = 1e-4  # relative L2 error at which the timing would be of something else
    longest = {"forward": 1 << 30, "train": 1 << 30, "decode": 1}  # tokens; beyond them it takes minutes, or all memory

    def start(self, x, threads):
        raise NotImplementedError

    def forward(self):
        raise NotImplementedError

    def output(self, result):
        return np.asarray(result)

    def train(self):
        raise NotImplementedError

    def gradients(self, result):
        return {name: np.asarray(value) for name, value in result.items()}

    def start_decode(self, x, threads):
        raise NotImplementedError

    def decode(self):
        raise NotImplementedError

    def decoded(self, result):
        raise NotImplementedError


class TorchPeer(Peer):
    """Functions of PyTorch on tensors [B, T, H, ...]; the gradients by autograd."""

    ops = ("forward", "train")

    def call(self, **tensors):
        """o from the tensors q, k, v and the gates of the rule."""
        raise NotImplementedError

    def start(self, x, threads):
        import torch

        torch.set_num_threads(threads)
        self.names = ["q", "k", "v", *RULES[self.rule]]
        self.x = {name: torch.from_numpy(x[name]) for name in self.names}
        self.d_o = torch.from_numpy(x["do"])

    def forward(self):
        import torch

        with torch.no_grad():
            return self.call(**self.x)

    def output(self, result):
        return result.float().numpy()

    def train(self):
        import torch

        leaves = {name: value.detach().requires_grad_() for name, value in self.x.items()}
        found = torch.autograd.grad(self.call(**leaves), list(leaves.values()), self.d_o)
        return {"d" + name: value for name, value in zip(leaves, found)}

    def gradients(self, result):
        return {name: value.float().numpy() for name, value in result.items()}


class JaxPeer(Peer):
    """Functions of JAX on arrays [B, T, H, ...], compiled; the gradients by jax.vjp. JAX takes as many threads as the process
    may use processors."""

    ops = ("forward", "train")

    def call(self, **arrays):
        raise NotImplementedError

    def call_to_train(self, **arrays):
        return self.call(**arrays)

    def start(self, x, threads):
        import jax
        import jax.numpy as jnp

        self.x = {name: jnp.asarray(x[name]) for name in ("q", "k", "v", *RULES[self.rule])}
        self.d_o = jnp.asarray(x["do"])
        self.compiled = jax.jit(lambda x: self.call(**x))
        self.compiled_train = jax.jit(lambda x, d_o: jax.vjp(lambda x: self.call_to_train(**x), x)[1](d_o)[0])

    def forward(self):
        return self.compiled(self.x).block_until_ready()

    def train(self):
        import jax

        return jax.block_until_ready(self.compiled_train(self.x, self.d_o))

    def gradients(self, result):
        return {"d" + name: np.asarray(value) for name, value in result.items()}
