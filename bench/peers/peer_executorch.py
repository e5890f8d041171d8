"""executorch's gated_delta_rule operators (C++, chunks of tokens).

Arrays are [B, H, T, ...]; they take the decay itself, and q scaled by the caller."""

from pathlib import Path

import numpy as np
from problem import Peer


class GatedDeltaRule(Peer):
    ops = ("forward", "decode")

    def __init__(self, rule, operator):
        self.name, self.rule, self.operator = f"executorch {operator}", rule, operator

    def start(self, x, threads):
        import torch

        torch.set_num_threads(threads)
        B, _, H, K = x["q"].shape
        heads_first = lambda a: torch.from_numpy(np.ascontiguousarray(np.swapaxes(a, 1, 2)))
        q, k, v, beta = (heads_first(x[name]) for name in ("q", "k", "v", "beta"))
        self.x = [q * K**-0.5, k, v, heads_first(np.exp(x["g"])), beta, torch.zeros(B, H, K, v.shape[-1])]

    def forward(self):
        import torch

        return getattr(torch.ops.llama, self.operator)(*self.x)[0]

    def output(self, result):
        return np.swapaxes(result.numpy(), 1, 2)

    def start_decode(self, x, threads):
        import torch

        self.start(x, threads)
        self.x[-1] = torch.from_numpy(x["pool"][x["slot"]])
        self.out = {"out": torch.empty_like(self.x[2]), "final_state_out": torch.empty_like(self.x[-1])}
        self.operation = getattr(torch.ops.llama, self.operator).out

    def decode(self):
        return self.operation(*self.x, **self.out)

    def decoded(self, result):
        return {"o": np.swapaxes(result[0].numpy(), 1, 2), "state": result[1].numpy()}


def peers():
    import executorch
    import torch

    (library,) = Path(list(executorch.__path__)[0]).glob("extension/llm/custom_ops/libcustom_ops_aot_lib.so")
    torch.ops.load_library(library)
    yield GatedDeltaRule("kda", "channelwise_gated_delta_rule")
    if hasattr(torch.ops.llama, "gated_delta_rule"):
        yield GatedDeltaRule("gdn", "gated_delta_rule")
