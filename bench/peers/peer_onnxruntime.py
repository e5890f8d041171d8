"""onnxruntime's com.microsoft LinearAttention, in a model of that one node. Heads are packed into the last axis."""

import numpy as np
from problem import RULES, Peer


def model(shape, rule):
    """The bytes of the model."""
    from onnx import TensorProto, helper

    B, T, H, K, V = shape
    axes = {"query": H * K, "key": H * K, "value": H * V, "decay": H * K if rule == "kda" else H, "beta": H}
    of = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    node = helper.make_node(
        "LinearAttention",
        ["query", "key", "value", "", "decay", "beta"],
        ["output", "present_state"],
        domain="com.microsoft",
        update_rule="gated_delta",
        q_num_heads=H,
        kv_num_heads=H,
        scale=K**-0.5,
    )
    outputs = [of("output", [B, T, H * V]), of("present_state", [B, H, K, V])]
    graph = helper.make_graph([node], "rule", [of(name, [B, T, width]) for name, width in axes.items()], outputs)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


class LinearAttention(Peer):
    def __init__(self, rule):
        self.name, self.rule = "onnxruntime LinearAttention", rule

    def start(self, x, threads):
        import onnxruntime

        B, T, H, K = x["q"].shape
        self.shape = B, T, H, K, x["v"].shape[-1]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model(self.shape, self.rule), options, providers=["CPUExecutionProvider"])
        names = {"q": "query", "k": "key", "v": "value", "g": "decay", "beta": "beta"}
        self.x = {names[name]: x[name].reshape(B, T, -1) for name in ("q", "k", "v", *RULES[self.rule])}

    def forward(self):
        return self.session.run(["output"], self.x)[0]

    def output(self, result):
        B, T, H, _, V = self.shape
        return np.reshape(result, (B, T, H, V))


def peers():
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401

    yield LinearAttention("kda")
    yield LinearAttention("gdn")
