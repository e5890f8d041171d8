"""The options of a problem around the float64 token loop: grouped heads, packed sequences, raw decays and gates, L2 norm."""

import numpy as np
import token_loop


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


GATES = {"given": lambda x: x, "sigmoid": sigmoid, "two_sigmoid": lambda x: 2 * sigmoid(x)}


def key_heads(HV, H, head_map):
    """The key head of each value head."""
    j = np.arange(HV)
    return j // (HV // H) if head_map == "grouped" else j % H


def decay(x, g, o):
    """The logarithm of the decay, [B, T, Hg, K or 1]."""
    if o.get("decay", "log") == "log":
        return g
    rate = np.exp(np.asarray(x["A_log"], np.float64))[:, None]
    bias = np.asarray(x.get("dt_bias", np.zeros(g.shape[2])), np.float64)
    raw = g + (bias[:, None] if bias.ndim == 1 else bias)
    if o["decay"] == "softplus":
        return -rate * np.logaddexp(0, raw)
    return o["lower_bound"] * sigmoid(rate * raw)


def finish(x, o):
    """The inputs as Gated DeltaNet-2 with one key head per value head, float64."""
    t = {name: np.asarray(value, np.float64) for name, value in x.items() if name != "cu_seqlens"}
    q, k, v = t["q"], t["k"], t["v"]
    H, HV = k.shape[2], v.shape[2]
    heads = key_heads(HV, H, o.get("head_map", "grouped"))

    def gate(name, like, neutral):
        value = t.get("beta") if name in "bw" and "beta" in t else t.get(name)
        if value is None:
            return np.full(like.shape, neutral, np.float64)
        value = value[..., None] if value.ndim == 3 else value
        if name == "g":
            value = decay(t, value, o)
        else:
            value = GATES[o.get({"b": "erase", "w": "write"}[name], "given")](value)
        value = value[:, :, heads] if value.shape[2] != HV else value
        return np.broadcast_to(value, like.shape)

    if o.get("qk_l2norm"):
        q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + 1e-6) for y in (q, k))
    q, k = q[:, :, heads], k[:, :, heads]
    done = {"q": q, "k": k, "v": v, "g": gate("g", k, 0), "b": gate("b", k, 0), "w": gate("w", v, 1)}
    return done | ({"h0": t["h0"]} if "h0" in t else {})


def forward(x, o):
    """{o, h_final} in float64."""
    done, scale = finish(x, o), o.get("scale")
    if x.get("cu_seqlens") is None:
        return token_loop.forward(done, scale=scale)[0]
    outputs, states = np.zeros_like(done["v"]), []
    cu = np.asarray(x["cu_seqlens"])
    for n, (begin, end) in enumerate(zip(cu[:-1], cu[1:])):
        one = {name: value[n : n + 1] if name == "h0" else value[:, begin:end] for name, value in done.items()}
        result = token_loop.forward(one, scale=scale)[0]
        outputs[:, begin:end] = result["o"]
        states.append(result["h_final"])
    return {"o": outputs, "h_final": np.concatenate(states)}


def slope(x, o, d_o, dh_final, direction, step=1e-5):
    """Central difference of sum(o d_o) + sum(h_final dh_final) along a direction {name: array}."""

    def loss(sign):
        moved = x | {name: np.asarray(x[name], np.float64) + sign * step * delta for name, delta in direction.items()}
        result = forward(moved, o)
        return (result["o"] * d_o).sum() + (result["h_final"] * dh_final).sum()

    return (loss(1) - loss(-1)) / (2 * step)


def sample(H=2, HV=6, K=5, V=7, B=2, T=19, N=None, key_gates=False, per_head=False, raw=False, seed=0):
    """float32 inputs for options: raw ones are normal, finished ones as a layer's."""
    r = np.random.default_rng(seed)
    N = B if N is None else N
    Hg = H if key_gates else HV

    def gate(heads, channels):
        return r.normal(size=(B, T, heads) if per_head else (B, T, heads, channels))

    x = {"q": r.normal(size=(B, T, H, K)), "k": r.normal(size=(B, T, H, K)) / np.sqrt(K), "v": r.normal(size=(B, T, HV, V))}
    x |= {"g": gate(Hg, K), "b": gate(Hg, K), "w": gate(HV, V), "h0": r.normal(size=(N, HV, K, V))}
    if raw:
        x |= {"A_log": r.normal(size=Hg) / 2, "dt_bias": r.normal(size=Hg) if per_head else r.normal(size=(Hg, K))}
    else:
        x |= {"g": -np.exp(x["g"] - 2), "b": sigmoid(x["b"]), "w": sigmoid(x["w"])}
    return {name: value.astype(np.float32) for name, value in x.items()}
