"""onnxruntime's com.microsoft LinearAttention, in a model of that one node. Heads are packed into the last axis."""

import numpy as np
from problem import RULES, Peer


def model(shape, rule, past):
    """The bytes of the model; past: with a state to start from."""
    from onnx import TensorProto, helper

    B, T, H, K, V = shape
    axes = {"query": H * K, "key": H * K, "value": H * V, "decay": H * K if rule == "kda" else H, "beta": H}
    of = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    state = [B, H, K, V]
    node = helper.make_node(
        "LinearAttention",
        ["query", "key", "value", "past_state" if past else "", "decay", "beta"],
        ["output", "present_state"],
        domain="com.microsoft",
        update_rule="gated_delta",
        q_num_heads=H,
        kv_num_heads=H,
        scale=K**-0.5,
    )
    outputs = [of("output", [B, T, H * V]), of("present_state", state)]
    inputs = [of(name, [B, T, width]) for name, width in axes.items()] + [of("past_state", state)] * past
    graph = helper.make_graph([node], "rule", inputs, outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


class LinearAttention(Peer):
    ops = ("forward", "decode")

    def __init__(self, rule):
        self.name, self.rule = "onnxruntime LinearAttention", rule

    def start(self, x, threads, past=False):
        import onnxruntime

        B, T, H, K = x["q"].shape
        self.shape = B, T, H, K, x["v"].shape[-1]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model(self.shape, self.rule, past), options, providers=["CPUExecutionProvider"])
        names = {"q": "query", "k": "key", "v": "value", "g": "decay", "beta": "beta"}
        self.x = {names[name]: x[name].reshape(B, T, -1) for name in ("q", "k", "v", *RULES[self.rule])}

    def forward(self):
        return self.session.run(["output"], self.x)[0]

    def output(self, result):
        B, T, H, _, V = self.shape
        return np.reshape(result, (B, T, H, V))

    def start_decode(self, x, threads):
        """Its outputs are bound to arrays, which are then not made anew by every call."""
        self.start(x, threads, True)
        B, _, H, _, V = self.shape
        before = x["pool"][x["slot"]]
        self.out = {"output": np.empty((B, 1, H * V), np.float32), "present_state": np.empty_like(before)}
        self.binding = self.session.io_binding()
        for name, array in (self.x | {"past_state": before}).items():
            self.binding.bind_cpu_input(name, array)
        for name, array in self.out.items():
            self.binding.bind_output(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)

    def decode(self):
        self.session.run_with_iobinding(self.binding)

    def decoded(self, result):
        return {"o": self.output(self.out["output"]), "state": self.out["present_state"]}


def peers():
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401

    yield LinearAttention("kda")
    yield LinearAttention("gdn")
