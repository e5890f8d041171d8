"""The recurrence of Gated DeltaNet-2 and its adjoint in NumPy float64, token by token: an oracle without a line of the library.

S <- diag(exp(g_t)) S;  x = w_t v_t - S^T (b_t k_t);  S <- S + k_t x^T;  o_t = scale S^T q_t
"""

import numpy as np

# What each rule takes besides q, k, v.
RULES = {
    "gdn2": ("g", "b", "w"),
    "kda": ("g", "beta"),
    "gdn": ("g", "beta"),
    "deltanet": ("beta",),
    "gla": ("g",),
}


def wide(x, rule):
    """The inputs of a rule as float64 gates over all channels; gates that the rule lacks at their neutral values."""
    t = {name: np.asarray(value, np.float64) for name, value in x.items()}
    k, v = t["k"], t["v"]
    g = t["g"] if "g" in RULES[rule] else np.zeros_like(k)
    b, w = (t["beta"][..., None],) * 2 if "beta" in RULES[rule] else (np.zeros_like(k), np.ones_like(v))
    if rule == "gdn2":
        b, w = t["b"], t["w"]
    g = g[..., None] if g.ndim == 3 else g
    return t["q"], k, v, np.broadcast_to(g, k.shape), np.broadcast_to(b, k.shape), np.broadcast_to(w, v.shape)


def forward(x, rule="gdn2", scale=None):
    """{o, h_final} and, for the adjoint, the state after the decay and after the write of every token."""
    q, k, v, g, b, w = wide(x, rule)
    B, T, H, K = k.shape
    scale = K**-0.5 if scale is None else scale
    S = np.array(x.get("h0", np.zeros((B, H, K, v.shape[-1]))), np.float64)
    o, decayed, written = np.zeros_like(v), [], []
    for t in range(T):
        S = np.exp(g[:, t])[..., None] * S
        decayed.append(S)
        residual = w[:, t] * v[:, t] - np.einsum("bhkv,bhk->bhv", S, b[:, t] * k[:, t])
        S = S + k[:, t][..., None] * residual[:, :, None]
        written.append((S, residual))
        o[:, t] = scale * np.einsum("bhkv,bhk->bhv", S, q[:, t])
    return {"o": o, "h_final": S}, (decayed, written, scale)


def gradients(x, rule="gdn2", scale=None):
    """Gradients of sum(o do) + sum(h_final dh_final), under the names of the program."""
    q, k, v, g, b, w = wide(x, rule)
    _, (decayed, written, scale) = forward(x, rule, scale)
    d = {name: np.zeros_like(like) for name, like in zip(("dq", "dk", "dv", "dg", "db", "dw"), (q, k, v, g, b, w))}
    d_o = np.asarray(x.get("do", np.zeros_like(v)), np.float64)
    B, T, H, K = k.shape
    dS = np.array(x.get("dh_final", np.zeros((B, H, K, v.shape[-1]))), np.float64)
    for t in reversed(range(T)):
        D, (S, residual) = decayed[t], written[t]
        dS = dS + scale * q[:, t][..., None] * d_o[:, t][:, :, None]
        d["dq"][:, t] = scale * np.einsum("bhkv,bhv->bhk", S, d_o[:, t])
        dx = np.einsum("bhkv,bhk->bhv", dS, k[:, t])
        d["dv"][:, t], d["dw"][:, t] = dx * w[:, t], dx * v[:, t]
        dkey = -np.einsum("bhkv,bhv->bhk", D, dx)  # by the product b k
        d["db"][:, t] = dkey * k[:, t]
        d["dk"][:, t] = np.einsum("bhkv,bhv->bhk", dS, residual) + dkey * b[:, t]
        dD = dS - (b[:, t] * k[:, t])[..., None] * dx[:, :, None]
        d["dg"][:, t] = (dD * D).sum(-1)
        dS = np.exp(g[:, t])[..., None] * dD
    d["dh0"] = dS
    return per_head(d, rule)


def per_head(d, rule):
    """Sums over the channels where a gate is one number per head; leaves out the gates that the rule lacks."""
    if "beta" in RULES[rule]:
        d["db"], d["dw"] = d["db"].sum(-1), d["dw"].sum(-1)
        d["dbeta"] = d["db"] + d["dw"]
    if rule == "gdn":
        d["dg"] = d["dg"].sum(-1)
    absent = {"gla": ("db", "dw"), "deltanet": ("dg",)}.get(rule, ())
    return {name: value for name, value in d.items() if name not in absent}


def sample(rule="gdn2", B=2, T=37, H=3, K=5, V=7, seed=0):
    """float32 inputs like a trained layer's: unit keys like their neighbours, gates in (0, 1), mixed decays, h0 not zero."""
    r = np.random.default_rng(seed)
    k = 2 * r.normal(size=(B, 1, H, K)) + r.normal(size=(B, T, H, K))
    x = {
        "q": r.normal(size=(B, T, H, K)),
        "k": k / np.linalg.norm(k, axis=-1, keepdims=True),
        "v": r.normal(size=(B, T, H, V)),
        "g": -np.exp(r.uniform(np.log(1e-3), np.log(0.5), size=(B, T, H) if rule == "gdn" else (B, T, H, K))),
        "b": r.uniform(0.05, 0.95, size=(B, T, H, K)),
        "w": r.uniform(0.05, 0.95, size=(B, T, H, V)),
        "beta": r.uniform(0.05, 0.95, size=(B, T, H)),
        "h0": r.normal(size=(B, H, K, V)),
        "do": r.normal(size=(B, T, H, V)),
        "dh_final": r.normal(size=(B, H, K, V)),
    }
    wanted = ("q", "k", "v", *RULES[rule], "h0", "do", "dh_final")
    return {name: x[name].astype(np.float32) for name in wanted}


def relative_error(value, reference):
    value, reference = np.asarray(value, np.float64), np.asarray(reference, np.float64)
    assert value.shape == reference.shape, (value.shape, reference.shape)
    return np.linalg.norm(value - reference) / np.linalg.norm(reference)


def assert_close(values, references, names=None):
    """Relative L2 errors: 1e-6 for outputs, 2e-6 for gradients; a small reference would prove nothing."""
    assert set(references) <= set(values)
    for name in names or references:
        size = np.sqrt(np.mean(np.square(references[name])))
        assert size > 1e-3, f"{name}: the reference is nearly zero ({size})"
        error = relative_error(values[name], references[name])
        bound = 1e-6 if name in ("o", "h_final") else 2e-6
        assert error <= bound, f"{name}: relative error {error:.3g} is above {bound}"
