"""The seed's pipeline of libgdn2.so, called with NumPy arrays through ctypes. The structs follow include/gdn2_seed.h."""

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_void_p

import numpy as np

PRESETS = {"default": 0, "plain": 1, "small": 2, "medium": 3, "large": 4}
RESIDUALS = ("Aqk", "Akk", "A", "h_pre_all", "v_new_all", "u", "w_pseudo", "kg", "qg", "gc_last")
GRADIENTS = ("dq", "dk", "dv", "dw", "db", "dg", "dh0")
WY_INPUTS = ("q", "k", "b", "gc", "w", "v", "A", "h_pre_all", "v_new_all", "d_o", "dv", "dh_next_all")
WY_GRADIENTS = ("dq", "dk", "db", "dgc", "dw", "dv_raw", "dAkk")


class Config(Structure):
    _fields_ = [("bt", c_int), ("bc", c_int), ("mb", c_int), ("clip", c_double), ("wy_eps", c_double)]


class Exec(Structure):
    _fields_ = [("threads", c_int), ("isa", c_int), ("workspace", c_void_p), ("workspace_bytes", c_size_t)]


class Shape(Structure):
    _fields_ = [("ndim", c_int), ("dim", c_int64 * 4)]


class Shapes(Structure):
    _fields_ = [(name, Shape) for name in ("q", "k", "v", "w", "b", "g", "h0")]


class Report(Structure):
    _fields_ = [("tag", c_char_p), ("stage", c_char_p), ("nonfinite", c_int64), ("max_abs", c_float), ("replaced", c_int64)]


REPORT_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Report))


class Call(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        *((name, c_int64) for name in "BLHKV"),
        ("config", POINTER(Config)),
        ("scale", POINTER(c_double)),
        ("exec", Exec),
        ("report", REPORT_FUNCTION),
        ("report_context", c_void_p),
        ("tag", c_char_p),
        ("profile", c_void_p),
    ]


def _pointers(names):
    return type("Pointers", (Structure,), {"_fields_": [(name, c_void_p) for name in names]})


Inputs = _pointers(("q", "k", "v", "w", "b", "g", "h0"))
# In the order of the header.
Residuals = _pointers(RESIDUALS)
Gradients = _pointers(GRADIENTS)
WyInputs = _pointers(WY_INPUTS)
WyGradients = _pointers(WY_GRADIENTS)


class SeedError(Exception):
    """A status that is not GDN2_OK, with the library's sentence."""


def _array(x):
    return np.ascontiguousarray(x, np.float32)


def _address(x):
    return None if x is None else x.ctypes.data


class Seed:
    """One problem: sizes from q and v, a configuration, a scale. Methods are the functions of the header without their prefix."""

    def __init__(self, path, q_shape, V, config, scale, threads=0):
        self.library = load(path)
        self.B, self.L, self.H, self.K = q_shape
        self.V = V
        self.config = config
        self.scale = c_double(scale)
        self.call = Call(
            struct_size=ctypes.sizeof(Call),
            B=self.B,
            L=self.L,
            H=self.H,
            K=self.K,
            V=V,
            config=ctypes.pointer(config),
            scale=ctypes.pointer(self.scale),
            exec=Exec(threads=threads),
        )
        chunks = -(-self.L // config.bt)
        lead = (self.B, self.H, chunks)
        self.shapes = {
            "score": (*lead, config.bt, config.bt),
            "keys": (*lead, config.bt, self.K),
            "values": (*lead, config.bt, V),
            "states": (*lead, self.K, V),
            "state": (self.B, self.H, self.K, V),
            "last": (*lead, self.K),
            "key_tokens": (self.B, self.L, self.H, self.K),
            "value_tokens": (self.B, self.L, self.H, V),
        }

    def run(self, name, inputs, outputs, *between):
        """gdn2_seed_<name>(call, inputs..., outputs...) with fresh outputs of the named shapes; their values."""
        inputs = [None if x is None else _array(x) for x in inputs]
        made = [np.full(self.shapes[kind], np.nan, np.float32) for kind in outputs]
        arguments = [c_void_p(_address(x)) for x in (*inputs, *made)]
        check(self.library, getattr(self.library, f"gdn2_seed_{name}")(byref(self.call), *between, *arguments))
        return made

    def scores(self, q, k, b, g):
        return self.run("scores", (q, k, b, g), ("score",) * 2)

    def solve(self, Akk):
        return self.run("solve", (Akk,), ("score",))[0]

    def rebuild(self, q, k, v, w, b, g, A):
        return self.run("rebuild", (q, k, v, w, b, g, A), ("keys", "values", "keys", "keys", "last"))

    def combine(self, Aqk, w_pseudo, u, kg, qg, gc_last, h0):
        return self.run("combine", (Aqk, w_pseudo, u, kg, qg, gc_last, h0), ("values", "state"))

    def combine_with_state(self, Aqk, w_pseudo, u, kg, qg, gc_last, h0):
        outputs = ("values", "state", "states", "values")
        return self.run("combine_with_state", (Aqk, w_pseudo, u, kg, qg, gc_last, h0), outputs)

    def dav_backward(self, Aqk, v_new, d_o):
        return self.run("dav_backward", (Aqk, v_new, d_o), ("score", "values"))

    def dhu_backward(self, d_o, dv_partial, w_pseudo, qg, kg, gc_last, dht):
        return self.run("dhu_backward", (d_o, dv_partial, w_pseudo, qg, kg, gc_last, dht), ("states", "state", "values"))

    def intra_backward(self, dAqk, dAkk, q, k, b, g):
        return self.run("intra_backward", (dAqk, dAkk, q, k, b, g), ("keys",) * 4)

    def reverse_cumsum(self, dgc):
        return self.run("reverse_cumsum", (dgc,), ("keys",))[0]

    def chunk_sums(self, g):
        return self.run("chunk_sums", (g,), ("keys",))[0]

    def to_chunks(self, tokens):
        kind = "keys" if tokens.shape[-1] == self.K else "values"
        return self.run("to_chunks", (tokens,), (kind,), c_int64(tokens.shape[-1]))[0]

    def from_chunks(self, chunks):
        kind = "key_tokens" if chunks.shape[-1] == self.K else "value_tokens"
        return self.run("from_chunks", (chunks,), (kind,), c_int64(chunks.shape[-1]))[0]

    def wy_backward(self, **inputs):
        kept = {name: _array(x) for name, x in inputs.items()}
        kinds = {"dAkk": "score", "dw": "values", "dv_raw": "values"}
        made = {name: np.full(self.shapes[kinds.get(name, "keys")], np.nan, np.float32) for name in WY_GRADIENTS}
        x, y = _struct(WyInputs, kept), _struct(WyGradients, made)
        check(self.library, self.library.gdn2_seed_wy_backward(byref(self.call), byref(x), byref(y)))
        return made

    def forward(self, inputs):
        """o, h_final, residuals."""
        kinds = {"h_pre_all": "states", "v_new_all": "values", "u": "values", "gc_last": "last"}
        kinds |= dict.fromkeys(("Aqk", "Akk", "A"), "score")
        residuals = {name: np.full(self.shapes[kinds.get(name, "keys")], np.nan, np.float32) for name in RESIDUALS}
        o, h_final = self._results()
        kept = {name: _array(x) for name, x in inputs.items() if x is not None}
        x, y = _struct(Inputs, kept), _struct(Residuals, residuals)
        status = self.library.gdn2_seed_forward(
            byref(self.call), byref(x), c_void_p(_address(o)), c_void_p(_address(h_final)), byref(y)
        )
        check(self.library, status)
        return o, h_final, residuals

    def outputs(self, name, inputs, *arguments):
        """o, h_final of forward (without residuals), token_serial, chunked_wy or forward_fallback."""
        o, h_final = self._results()
        kept = {key: _array(x) for key, x in inputs.items() if x is not None}
        x = _struct(Inputs, kept)
        middle, last = (arguments, ()) if name == "chunked_wy" else ((), arguments)
        status = getattr(self.library, f"gdn2_seed_{name}")(
            byref(self.call), byref(x), *middle, c_void_p(_address(o)), c_void_p(_address(h_final)), *last
        )
        check(self.library, status)
        return o, h_final

    def backward(self, inputs, residuals, d_o, dh_final):
        kinds = {"dv": "value_tokens", "dw": "value_tokens", "dh0": "state"}
        made = {name: np.full(self.shapes[kinds.get(name, "key_tokens")], np.nan, np.float32) for name in GRADIENTS}
        kept = {name: _array(x) for name, x in inputs.items() if x is not None}
        x, y = _struct(Inputs, kept), _struct(Gradients, made)
        r = byref(_struct(Residuals, residuals)) if residuals is not None else None
        d_o, dh_final = _array(d_o), None if dh_final is None else _array(dh_final)
        status = self.library.gdn2_seed_backward(
            byref(self.call), byref(x), r, c_void_p(_address(d_o)), c_void_p(_address(dh_final)), byref(y)
        )
        check(self.library, status)
        return made

    def _results(self):
        return (np.full(self.shapes["value_tokens"], np.nan, np.float32), np.full(self.shapes["state"], np.nan, np.float32))


def _struct(kind, arrays):
    return kind(**{name: _address(x) for name, x in arrays.items()})


def load(path):
    library = ctypes.CDLL(str(path))
    library.gdn2_last_error.restype = c_char_p
    return library


def check(library, status):
    if status != 0:
        raise SeedError(library.gdn2_last_error().decode())


def preset(library, name):
    config = Config()
    check(library, library.gdn2_seed_config_preset(PRESETS[name], byref(config)))
    return config


def estimate_memory(library, *sizes):
    megabytes = c_double()
    check(library, library.gdn2_seed_estimate_memory(*map(c_int64, sizes), byref(megabytes)))
    return megabytes.value


def recommended_config(library, *sizes):
    config = Config()
    check(library, library.gdn2_seed_recommended_config(*map(c_int64, sizes), byref(config)))
    return config


def shapes(**tensors):
    """gdn2_seed_shapes of tuples; h0 may be missing."""
    return Shapes(**{name: Shape(len(dim), (c_int64 * 4)(*dim[:4])) for name, dim in tensors.items()})
