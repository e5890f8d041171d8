"""libgdn2 itself, as one more peer: the yardstick that every other is timed in turns with."""

import ctypes
import os
import subprocess

import ml_dtypes
import numpy as np
from problem import RULES, SOURCE, Peer

DTYPES = {"f32": (0, np.float32), "bf16": (1, ml_dtypes.bfloat16)}
ALIGNMENT = 64


class Arrays(ctypes.Structure):
    """`arrays` of library.c."""

    _fields_ = (
        [(name, ctypes.c_int64) for name in "BTHKV"]
        + [(name, ctypes.c_void_p) for name in "qkvgbw"]
        + [(name, ctypes.c_int) for name in ("g_per_head", "b_per_head", "dtype", "threads")]
    )


def compiled(build):
    """library.c against the header and the library of the build folder."""
    out = build / "peers" / "libbench.so"
    out.parent.mkdir(exist_ok=True)
    source = SOURCE / "bench" / "peers" / "library.c"
    temporary = out.with_suffix(f".{os.getpid()}")
    command = [os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-shared", "-fPIC", f"-I{SOURCE / 'include'}", source]
    subprocess.run([*command, "-o", temporary, f"-L{build}", "-lgdn2", f"-Wl,-rpath,{build}"], check=True)
    temporary.replace(out)
    return ctypes.CDLL(str(out))


def aligned(shape, dtype):
    """An array that begins at a cache line, as those of PyTorch and JAX do."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(count + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + count].view(dtype).reshape(shape)


class Pool(ctypes.Structure):
    """`pool` of library.c."""

    _fields_ = [("states", ctypes.c_void_p), ("slot", ctypes.c_void_p), ("slots", ctypes.c_int64)] + [
        (name, ctypes.c_void_p) for name in ("A_log", "dt_bias")
    ]


class Library(Peer):
    name = "libgdn2"

    def __init__(self, library, rule, dtype="f32", raw=False):
        self.library, self.rule, self.dtype, self.raw = library, rule, dtype, raw
        self.tolerance = 2e-6 if dtype == "f32" else 1e-2
        self.trains = dtype == "f32"
        self.ops = ("forward", "train", "decode") if self.trains else ("forward", "decode")
        library.gdn2_last_error.restype = ctypes.c_char_p

    def start(self, x, threads):
        code, kind = DTYPES[self.dtype]
        B, T, H, K = x["q"].shape
        gates = {name: name for name in "gbw" if name in RULES[self.rule]}
        if "beta" in RULES[self.rule]:
            gates |= {"b": "beta", "w": "beta"}
        self.x = {}
        for name in ("q", "k", "v", *RULES[self.rule]):
            self.x[name] = aligned(x[name].shape, np.float32 if name == "g" and not self.raw else kind)
            self.x[name][...] = x[name]
        of = lambda name: self.x[name].ctypes.data
        pointers = {name: of(name) for name in "qkv"} | {name: of(gate) for name, gate in gates.items()}
        beta = "beta" in RULES[self.rule]
        sizes = dict(zip("BTHKV", (B, T, H, K, x["v"].shape[-1])))
        per_head = {"g_per_head": int(self.rule == "gdn"), "b_per_head": int(beta)}
        self.arrays = Arrays(**sizes, **pointers, **per_head, dtype=code, threads=threads)
        self.o, self.residual = aligned(x["v"].shape, kind), aligned(x["v"].shape, np.float32)
        self.snapshots = aligned((B, T // 128, H, K, x["v"].shape[-1]), np.float32)
        if self.trains:
            self.d_o = aligned(x["do"].shape, np.float32)
            self.d_o[...] = x["do"]
            like = {"q": "q", "k": "k", "v": "v"} | gates
            self.d = {name: aligned(x[like[name]].shape, np.float32) for name in "qkvgbw" if name in like}
            self.d_pointers = (ctypes.c_void_p * 6)(*[self.d[name].ctypes.data if name in self.d else None for name in "qkvgbw"])

    def check(self, status):
        if status:
            raise RuntimeError(self.library.gdn2_last_error().decode())

    def forward(self, kept=(None, None)):
        self.check(self.library.bench_forward(ctypes.byref(self.arrays), ctypes.c_void_p(self.o.ctypes.data), *kept))
        return self.o

    def output(self, result):
        return np.asarray(result, np.float32)

    def train(self):
        kept = [ctypes.c_void_p(x.ctypes.data) for x in (self.snapshots, self.residual)]
        self.forward(kept)
        d_o = ctypes.c_void_p(self.d_o.ctypes.data)
        self.check(self.library.bench_backward(ctypes.byref(self.arrays), d_o, *kept, self.d_pointers))
        return self.d

    def gradients(self, result):
        found = {"d" + name: value for name, value in result.items()}
        if "beta" in RULES[self.rule]:
            found["dbeta"] = found["db"] + found["dw"]
        return found

    def start_decode(self, x, threads):
        raw = x["raw"] if self.raw else {}
        gates = {"g": raw["a"], "beta": raw["b"]} if raw else {}
        self.start(x | raw | gates, threads)
        self.states = aligned(x["pool"].shape, np.float32)
        self.states[...] = x["pool"]
        self.slot, self.of_heads = x["slot"], [raw.get(name) for name in ("A_log", "dt_bias")]
        pointer = lambda array: None if array is None else array.ctypes.data
        self.pool = Pool(pointer(self.states), pointer(self.slot), len(self.states), *map(pointer, self.of_heads))

    def decode(self):
        self.check(self.library.bench_decode(ctypes.byref(self.arrays), ctypes.byref(self.pool), ctypes.c_void_p(self.o.ctypes.data)))

    def decoded(self, result):
        return {"o": np.asarray(self.o, np.float32), "state": self.states[self.slot]}
