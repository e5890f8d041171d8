"""atomic-ops 0.1.0, the package the seed's pipeline is named after: what it does on a machine without a TPU."""

from problem import JaxPeer


class Pipeline(JaxPeer):
    rule = "gdn2"
    tolerance = 1e-3

    def __init__(self, name, config):
        self.name, self.config = f"atomic-ops gdn2_forward, {name}", config

    def call(self, q, k, v, g, b, w):
        import atomic_ops

        return atomic_ops.gdn2_forward(q, k, v, w, b, g, q.shape[-1] ** -0.5, config=self.config)[0]

    def call_to_train(self, q, k, v, g, b, w):
        import atomic_ops

        return atomic_ops.gdn2_forward_trainable(q, k, v, w, b, g, q.shape[-1] ** -0.5, config=self.config)[0]


class TokenSerial(JaxPeer):
    name, rule, trains = "atomic-ops token-serial scan", "gdn2", False

    def call(self, q, k, v, g, b, w):
        from atomic_ops import reference

        return reference.gdn2_token_serial_reference(q, k, v, g, b, w, q.shape[-1] ** -0.5)[0]


def peers():
    import atomic_ops

    yield Pipeline("default config", None)
    yield Pipeline("KAGGLE_SMALL", atomic_ops.KAGGLE_SMALL)
    yield TokenSerial()
