"""bitsandbytes-cpu-fork: gdn_fwd_cpu and gdn_bwd_cpu of its library, called by their C interface.

q, k, v, o [B, T, H, D] (layout 1), q scaled by the caller, so that dq is by the scaled q; beta and g [B, H, T]. The forward
keeps a state every `chunk` tokens for the backward. Its threads follow OMP_NUM_THREADS, which run.py sets.
"""

import ctypes
import importlib.metadata

import numpy as np
from problem import Peer

F32, LAYOUT_BTHD = 0, 1


class FusedRecurrent(Peer):
    name, rule, ops = "bitsandbytes-cpu-fork gdn_fwd_cpu", "gdn", ("forward", "train", "decode")

    def __init__(self, library):
        self.library = library

    before = None  # the state, of decode

    def start(self, x, threads):
        B, T, H, K = x["q"].shape
        V = x["v"].shape[-1]
        self.scale = np.float32(K**-0.5)
        per_token = lambda a: np.ascontiguousarray(np.swapaxes(a, 1, 2))
        chunk = max(64, min(512, T))
        self.x = [x["q"] * self.scale, x["k"], x["v"], per_token(x["beta"]), per_token(x["g"])]
        self.o, self.final = np.empty_like(x["v"]), np.empty((B, H, K, V), np.float32)
        self.kept = np.empty((B, H, -(-T // chunk), K, V), np.float32)
        self.d_o = x["do"]
        like = [*self.x, self.final]
        self.d = [np.empty_like(array) for array in like]
        self.sizes = [ctypes.c_int(n) for n in (B, H, T, K, V, F32, chunk, LAYOUT_BTHD)]

    def call(self, function, *arrays):
        pointers = [ctypes.c_void_p(None if a is None else a.ctypes.data) for a in arrays]
        if code := function(*pointers, *self.sizes):
            raise RuntimeError(f"code {code}")

    def run_forward(self, kept):
        self.call(self.library.gdn_fwd_cpu, *self.x, self.before, self.o, self.final, kept)
        return self.o

    def forward(self):
        return self.run_forward(None)

    def train(self):
        self.run_forward(self.kept)
        self.call(self.library.gdn_bwd_cpu, *self.x, self.d_o, None, self.kept, *self.d)
        return self.d

    def gradients(self, result):
        dq, dk, dv, dbeta, dg, _ = result
        return {"dq": dq * self.scale, "dk": dk, "dv": dv, "dbeta": np.swapaxes(dbeta, 1, 2), "dg": np.swapaxes(dg, 1, 2)}

    def start_decode(self, x, threads):
        self.start(x, threads)
        self.before = x["pool"][x["slot"]]

    def decode(self):
        return self.run_forward(None)

    def decoded(self, result):
        return {"o": result, "state": self.final}


def library():
    with open("/proc/cpuinfo") as f:
        wide = "avx512f" in next(line for line in f if line.startswith("flags")).split()
    name = "libbitsandbytes_cpu_avx512.so" if wide else "libbitsandbytes_cpu.so"
    (path,) = [path for path in importlib.metadata.files("bitsandbytes-cpu-fork") if path.name == name]
    return ctypes.CDLL(path.locate())


def peers():
    yield FusedRecurrent(library())
