"""Hugging Face transformers: the functions that Qwen3-Next runs on a CPU."""

import sys

from problem import TorchPeer


class Qwen3Next(TorchPeer):
    rule = "gdn"

    def __init__(self, function):
        self.name, self.function = f"transformers {function.__name__}", function

    def call(self, q, k, v, g, beta):
        return self.function(q, k, v, g, beta)[0]


def peers():
    sys.modules["fla"] = None  # where it is installed, transformers takes its kernels, which want a GPU
    from transformers.models.qwen3_next import modeling_qwen3_next as model

    yield Qwen3Next(model.torch_chunk_gated_delta_rule)
