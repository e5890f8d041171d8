"""The argument structs of the C headers as byte layouts.

A call packs all numbers of its argument struct at once, which is several times faster than assigning ctypes fields one by one.
tests/python/test_numpy_layout.py compares every offset with what a C compiler says.
"""

import struct


class Layout:
    """A C struct: fields are (name, format of the struct module) or (name, Layout). Native sizes and alignment."""

    def __init__(self, *fields):
        self.fields = fields
        # "0q": as every struct of the library, it ends aligned for 8 bytes.
        formats = [kind.format if isinstance(kind, Layout) else kind for _, kind in fields]
        self.format = "".join(formats) + "0q"
        self.size = struct.calcsize("@" + self.format)
        # A problem is packed on its own and taken as bytes.
        parts = [f"{kind.size}s" if name == "problem" else format for (name, kind), format in zip(fields, formats)]
        self.packed = struct.Struct("@" + "".join(parts) + "0q")

    def offsets(self, prefix="", start=0):
        """{dotted name: (offset, bytes)} of the fields that are no structs themselves."""
        found, format = {}, "@"
        for name, kind in self.fields:
            if isinstance(kind, Layout):
                format += "0q"
                found |= kind.offsets(f"{prefix}{name}.", start + struct.calcsize(format))
                format += kind.format
            else:
                end = struct.calcsize(format + kind)
                size = struct.calcsize("@" + kind)
                found[prefix + name] = (start + end - size, size)
                format += kind
        return found


# A pointer that Python never gives: zeros, which take no number.
NULL = f"{struct.calcsize('P')}x"
TENSOR = Layout(("data", "P"), ("dtype", "i"), ("stride", "4q"))
ABSENT = (0, 0, 0, 0, 0, 0)
STATES = Layout(("data", "P"), ("dtype", "i"), ("stride", "5q"))
NO_STATES = (0, 0, 0, 0, 0, 0, 0)
# Tokens between the states that a forward keeps for its backward.
KEEP_EVERY = 128

PROBLEM = Layout(
    *((name, "q") for name in ("B", "T", "H", "K", "V")),
    *((name, TENSOR) for name in ("q", "k", "v", "g", "b", "w", "h0")),
    ("scale", "P"),
    ("HV", "q"),
    *((name, "i") for name in ("map", "g_key_heads", "b_key_heads")),
    ("cu_seqlens", "P"),
    ("cu_seqlens_type", "i"),
    ("N", "q"),
    ("decay", "i"),
    ("A_log", TENSOR),
    ("dt_bias", TENSOR),
    ("lower_bound", "d"),
    *((name, "i") for name in ("erase", "write", "qk_l2norm")),
)

EXEC = Layout(("threads", "i"), ("isa", "i"), ("workspace", "P"), ("workspace_bytes", "N"))

FORWARD = Layout(
    ("struct_size", "N"),
    ("problem", PROBLEM),
    ("o", TENSOR),
    ("h_final", TENSOR),
    ("snapshots", STATES),
    ("snapshot_every", "q"),
    ("residual", TENSOR),
    ("exec", EXEC),
    ("profile", NULL),
)

GRADIENTS = ("dq", "dk", "dv", "dg", "db", "dw", "dh0", "dA_log", "ddt_bias")
BACKWARD = Layout(
    ("struct_size", "N"),
    ("problem", PROBLEM),
    ("d_o", TENSOR),
    ("dh_final", TENSOR),
    *((name, TENSOR) for name in GRADIENTS),
    ("snapshots", STATES),
    ("snapshot_every", "q"),
    ("checkpoint_every", "q"),
    ("residual", TENSOR),
    ("exec", EXEC),
    ("profile", NULL),
)

STEP = Layout(
    ("struct_size", "N"),
    ("problem", PROBLEM),
    ("o", TENSOR),
    ("from", TENSOR),
    ("to", TENSOR),
    ("slot", "P"),
    ("slot_type", "i"),
    ("slots", "q"),
    ("reset", "P"),
    ("each", STATES),
    ("history", STATES),
    ("history_length", "q"),
    ("accepted", "P"),
    ("accepted_type", "i"),
    ("drafts_by_slot", "i"),
    ("exec", EXEC),
)

CONV_PROBLEM = Layout(
    *((name, "q") for name in ("B", "T", "D", "W")),
    *((name, TENSOR) for name in ("x", "weight", "bias", "state")),
    ("silu", "i"),
    ("cu_seqlens", "P"),
    ("cu_seqlens_type", "i"),
    ("N", "q"),
    ("slots", "P"),
    ("slots_type", "i"),
    ("slot_count", "q"),
    ("fresh", "P"),
)
CONV_FORWARD = Layout(("struct_size", "N"), ("problem", CONV_PROBLEM), ("y", TENSOR), ("state_final", TENSOR), ("exec", EXEC))
CONV_BACKWARD = Layout(
    ("struct_size", "N"),
    ("problem", CONV_PROBLEM),
    *((name, TENSOR) for name in ("dy", "dstate_final", "dx", "dweight", "dbias", "dstate")),
    ("exec", EXEC),
)

NORM_PROBLEM = Layout(
    *((name, "q") for name in ("B", "T", "H", "D")),
    *((name, TENSOR) for name in ("x", "z", "weight")),
    ("gate", "i"),
    ("plus_one", "i"),
    ("eps", "d"),
)
NORM_FORWARD = Layout(("struct_size", "N"), ("problem", NORM_PROBLEM), ("y", TENSOR), ("exec", EXEC))
NORM_BACKWARD = Layout(
    ("struct_size", "N"),
    ("problem", NORM_PROBLEM),
    *((name, TENSOR) for name in ("dy", "dx", "dz", "dweight")),
    ("exec", EXEC),
)

# Structs by their C names, for the test.
STRUCTS = {
    "gdn2_input": TENSOR,
    "gdn2_output": TENSOR,
    "gdn2_problem": PROBLEM,
    "gdn2_exec": EXEC,
    "gdn2_forward_args": FORWARD,
    "gdn2_backward_args": BACKWARD,
    "gdn2_states": STATES,
    "gdn2_step_args": STEP,
    "gdn2_conv_problem": CONV_PROBLEM,
    "gdn2_conv_forward_args": CONV_FORWARD,
    "gdn2_conv_backward_args": CONV_BACKWARD,
    "gdn2_norm_problem": NORM_PROBLEM,
    "gdn2_norm_forward_args": NORM_FORWARD,
    "gdn2_norm_backward_args": NORM_BACKWARD,
}

DTYPES = {"float32": 0, "bfloat16": 1, "float16": 2, "float64": 3}
INDEX_TYPES = {"int32": 0, "int64": 1}
HEAD_MAPS = {"grouped": 0, "tiled": 1}
DECAYS = {"log": 0, "softplus": 1, "bounded": 2}
GATES = {"given": 0, "sigmoid": 1, "two_sigmoid": 2}
WRITES = {"given": 0, "sigmoid": 1}
NORM_GATES = {"silu": 0, "sigmoid": 1}
ISAS = {"auto": 0, "generic": 1, "avx2": 2, "avx512": 3, "neon": 4}
