"""deltanet-tpu: Pallas kernels for TPUs, which run on a CPU in interpret mode (from Python 3.12 on)."""

from problem import JaxPeer


class Chunk(JaxPeer):
    longest = {"forward": 4096, "train": 4096}
    tolerance = 1e-3

    def __init__(self, rule, function):
        self.name, self.rule, self.function = f"deltanet-tpu {function.__name__}", rule, function

    def call(self, **arrays):
        return self.function(**arrays, chunk_size=128, precision="fp32", is_inference=True)

    def call_to_train(self, **arrays):
        return self.function(**arrays, chunk_size=128, precision="fp32")


def peers():
    import deltanet_tpu

    yield Chunk("gdn2", deltanet_tpu.chunk_gdn2)
    yield Chunk("kda", deltanet_tpu.chunk_kda)
