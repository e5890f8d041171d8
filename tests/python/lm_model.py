"""The language model restated, token by token, from a checkpoint of gdn2 train: in NumPy, or in PyTorch with its gradients.

It shares nothing with the program but the names of the weights, which are those that flash-linear-attention's layers have.
"""

import json
import math

import numpy as np

EPS = 1e-6


def load(folder, array=lambda x: x.astype(np.float64)):
    """config.json, and the weights of the checkpoint without what belongs to the optimiser."""
    from safetensors.numpy import load_file

    tensors = load_file(folder / "checkpoint.safetensors")
    weights = {name: array(x) for name, x in tensors.items() if not name.startswith(("adamw.", "training."))}
    return json.loads((folder / "config.json").read_text()), weights, tensors


class Model:
    """xp: numpy, or torch with weights that want gradients."""

    def __init__(self, config, weights, xp=np):
        self.config, self.weights, self.xp = config, weights, xp
        self.H, self.K = config["num_heads"], config["head_dim"]

    def sigmoid(self, x):
        return 1 / (1 + self.xp.exp(-x))

    def silu(self, x):
        return x * self.sigmoid(x)

    def norm(self, x, weight):
        return x / self.xp.sqrt((x * x).mean(-1)[..., None] + EPS) * weight

    def l2(self, x):
        return x / self.xp.sqrt((x * x).sum(-1)[..., None] + EPS)

    def heads(self, x):
        """[T, H * K] -> [T, H, K], and one number per head -> [T, H, 1]."""
        return x.reshape(len(x), self.H, -1)

    def conv(self, x, taps):
        """Causal, depthwise; tap W-1 meets the token itself."""
        W, rows = taps.shape[2], []
        for t in range(len(x)):
            rows.append(sum(taps[:, 0, W - 1 - lag] * x[t - lag] for lag in range(min(W, t + 1))))
        return self.silu(self.xp.stack(rows))

    def gates(self, n, w):
        """Log-decay, erase and write, each [T, H, K] or [T, H, 1]."""
        rule = self.config["rule"]
        erase = self.heads(self.sigmoid(n @ w("b_proj.weight").T))
        write = self.heads(self.sigmoid(n @ w("w_proj.weight").T)) if rule == "gdn2" else erase
        if rule == "deltanet":
            return 0 * erase, erase, write
        f = n @ w("a_proj.weight").T if rule == "gdn" else n @ w("f_proj.0.weight").T @ w("f_proj.1.weight").T
        f = f + w("dt_bias")
        softplus = self.xp.log1p(self.xp.exp(f)) if self.xp is np else self.xp.nn.functional.softplus(f)
        return -self.xp.exp(w("A_log"))[:, None] * self.heads(softplus), erase, write

    def rule(self, q, k, v, g, erase, write):
        S, rows = 0 * (k[0][:, :, None] * v[0][:, None, :]), []
        for t in range(len(q)):
            S = self.xp.exp(g[t])[:, :, None] * S
            read = ((erase[t] * k[t])[:, :, None] * S).sum(1)
            S = S + k[t][:, :, None] * (write[t] * v[t] - read)[:, None, :]
            rows.append((q[t][:, :, None] * S).sum(1) / math.sqrt(self.K))
        return self.xp.stack(rows)

    def mixer(self, x, layer):
        w = lambda name: self.weights[f"model.layers.{layer}.attn.{name}"]
        n = self.norm(x, self.weights[f"model.layers.{layer}.attn_norm.weight"])
        q, k, v = (self.heads(self.conv(n @ w(f"{c}_proj.weight").T, w(f"{c}_conv1d.weight"))) for c in "qkv")
        o = self.rule(self.l2(q), self.l2(k), v, *self.gates(n, w))
        z = self.heads(n @ w("g_proj.0.weight").T @ w("g_proj.1.weight").T + w("g_proj.1.bias"))
        gate = self.sigmoid(z) if self.config["output_gate"] == "sigmoid" else self.silu(z)
        y = self.norm(o, w("o_norm.weight")) * gate
        return x + y.reshape(len(x), -1) @ w("o_proj.weight").T

    def mlp(self, x, layer):
        w = lambda name: self.weights[f"model.layers.{layer}.{name}.weight"]
        n = self.norm(x, w("mlp_norm"))
        return x + (self.silu(n @ w("mlp.gate_proj").T) * (n @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T

    def logits(self, tokens):
        x = self.weights["model.embeddings.weight"][tokens]
        for layer in range(self.config["num_hidden_layers"]):
            x = self.mlp(self.mixer(x, layer), layer)
        head = "model.embeddings.weight" if self.config["tie_word_embeddings"] else "lm_head.weight"
        return self.norm(x, self.weights["model.norm.weight"]) @ self.weights[head].T

    def loss(self, tokens, targets):
        """Mean cross-entropy in nats."""
        z = self.logits(tokens)
        z = z - (z.max(-1) if self.xp is np else z.max(-1).values)[:, None]
        picked = z[list(range(len(targets))), list(targets)]
        return (self.xp.log(self.xp.exp(z).sum(-1)) - picked).mean()


def mix(z):
    mask = 2**64 - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
    z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
    return z ^ z >> 31


def window_of(text, seed, index, length, validation):
    """Sample number index of training: where it begins is a random number of the documented generator."""
    mask = 2**64 - 1
    training = len(text) - int(len(text) * validation)
    bits = mix(mix(mix(seed) + 0x100000000 & mask) + (index + 1) * 0x9E3779B97F4A7C15 & mask)
    at = bits % (training - length)
    return list(text[at : at + length]), list(text[at + 1 : at + length + 1])
