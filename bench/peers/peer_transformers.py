"""Hugging Face transformers: the functions that Qwen3-Next runs on a CPU."""

import sys

from problem import Peer, TorchPeer


class Qwen3Next(TorchPeer):
    rule = "gdn"

    def __init__(self, function):
        self.name, self.function = f"transformers {function.__name__}", function

    def call(self, q, k, v, g, beta):
        return self.function(q, k, v, g, beta)[0]


class Qwen3NextDecode(Peer):
    rule, ops = "gdn", ("decode",)

    def __init__(self, function):
        self.name, self.function = f"transformers {function.__name__}", function

    def start_decode(self, x, threads):
        import torch

        torch.set_num_threads(threads)
        self.x = [torch.from_numpy(x[name]) for name in ("q", "k", "v", "g", "beta")]
        self.state = torch.from_numpy(x["pool"][x["slot"]])

    def decode(self):
        import torch

        with torch.no_grad():
            return self.function(*self.x, initial_state=self.state, output_final_state=True)

    def decoded(self, result):
        return {"o": result[0].numpy(), "state": result[1].numpy()}


def peers():
    sys.modules["fla"] = None  # where it is installed, transformers takes its kernels, which want a GPU
    from transformers.models.qwen3_next import modeling_qwen3_next as model

    yield Qwen3Next(model.torch_chunk_gated_delta_rule)
    yield Qwen3NextDecode(model.torch_recurrent_gated_delta_rule)
