"""fla-core: the functions of flash-linear-attention that need no GPU."""

from problem import TorchPeer


class Naive(TorchPeer):
    def __init__(self, rule, kind, function):
        self.name, self.rule, self.function = f"fla {function.__name__}", rule, function
        # Autograd keeps several states for every token of the recurrent ones, and its time grows as the square of their number.
        self.longest = {"forward": 4096, "train": 2048 if kind == "recurrent" else 4096}

    def call(self, **tensors):
        return self.function(**tensors)[0]


def peers():
    from fla.ops.gated_delta_rule import naive as gdn
    from fla.ops.gdn2 import naive as gdn2
    from fla.ops.kda import naive as kda

    yield Naive("gdn2", "recurrent", gdn2.naive_recurrent_gdn2)
    yield Naive("gdn2", "chunk", gdn2.naive_chunk_gdn2)
    yield Naive("kda", "recurrent", kda.naive_recurrent_kda)
    yield Naive("kda", "chunk", kda.naive_chunk_kda)
    yield Naive("gdn", "recurrent", gdn.naive_recurrent_gated_delta_rule)
    yield Naive("gdn", "chunk", gdn.naive_chunk_gated_delta_rule)
