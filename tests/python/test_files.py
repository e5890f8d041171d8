""".npy files that lie: headers broken by hand and by hypothesis, given to the program.

The package numpy is the judge: what the program takes, it must take with the same meaning. Whatever the program does
not take ends with exit code 2 and a sentence that names the file; never with a crash, never with a file left behind.
"""

import io
import re
import struct

import numpy as np
import pytest
from broken_files import SHAPE, TENSORS, Q, assert_output, changes, mutate, workshop  # noqa: F401
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.program
Q_BYTES = Q.tobytes()


def npy_bytes(array, version=(1, 0)):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version)
    return stream.getvalue()


def npy_with(header, version=1, data=Q_BYTES, length=None):
    """A file with any header text and any stated length."""
    header = header if isinstance(header, bytes) else header.encode("latin1")
    form = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(form, len(header) if length is None else length) + header + data


GOOD_HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 1, 3), }"


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("dtype", ["<f4", "<f8", "<f2"])
def test_versions_and_types_of_npy(workshop, version, dtype):
    assert workshop("npy", npy_bytes(Q.astype(dtype), version)), workshop.sentence
    assert_output(workshop, TENSORS)


@pytest.mark.parametrize(
    "header",
    [
        GOOD_HEADER,
        GOOD_HEADER + " " * 40 + "\n",
        '{"descr":"<f4","fortran_order":False,"shape":(1,2,1,3)}',
        "{'shape': (1, 2, 1, 3,), 'fortran_order': False, 'descr': '<f4'}",
    ],
)
def test_spellings_of_a_header(workshop, header):
    assert workshop("npy", npy_with(header)), workshop.sentence
    assert_output(workshop, TENSORS)


NPY_FAULTS = {
    "truncated magic": (b"\x93NUM", "byte 4: the file ends before its header"),
    "other magic": (b"\x93NUMPX" + npy_with(GOOD_HEADER)[6:], "byte 0: not a .npy file"),
    "version 4": (npy_with(GOOD_HEADER, version=4)[:10] + b"\0" * 50, "byte 6: version 4.0"),
    "version 0": (npy_with(GOOD_HEADER, version=0), "byte 6: version 0.0"),
    "no length": (b"\x93NUMPY\x02\x00\x10\x00", "byte 10: the file ends before its header"),
    "length beyond the file": (
        npy_with(GOOD_HEADER, length=9999),
        "byte 8: header length 9999 goes beyond the end of the file at byte",
    ),
    "huge length": (npy_with(GOOD_HEADER, version=2, length=2**32 - 1), "byte 8: header length 4294967295 is above 10000"),
    "length of 0": (npy_with(GOOD_HEADER, length=0), "byte 10: the header must begin with {"),
    "short length": (npy_with(GOOD_HEADER, length=30), "byte 40: "),
    "long shape": (
        npy_with(GOOD_HEADER.replace("(1, 2, 1, 3)", "(1, 2, 1, 4)")),
        "the shape asks for 32 bytes of data after byte 75, the file holds 24",
    ),
    "short shape": (npy_with(GOOD_HEADER.replace("(1, 2, 1, 3)", "(1, 2, 1, 2)")), "asks for 16 bytes of data"),
    "truncated data": (npy_with(GOOD_HEADER, data=Q.tobytes()[:-1]), "asks for 24 bytes .* holds 23"),
    "trailing data": (npy_with(GOOD_HEADER, data=Q.tobytes() + b"\0"), "asks for 24 bytes .* holds 25"),
    "negative size": (
        npy_with(GOOD_HEADER.replace("(1, 2", "(1, -2")),
        "byte 64: shape must hold sizes that are whole and not negative",
    ),
    "fraction": (npy_with(GOOD_HEADER.replace("(1, 2", "(1, 2.0")), "byte 65: a comma or a closing parenthesis"),
    "overflowing size": (
        npy_with(GOOD_HEADER.replace("(1, 2", "(1, 9223372036854775808")),
        "byte 64: a size in shape is too large",
    ),
    "overflowing product": (
        npy_with(GOOD_HEADER.replace("(1, 2", "(4294967296, 4294967296")),
        "the product of the shape overflows",
    ),
    "overflowing bytes": (
        npy_with(GOOD_HEADER.replace("(1, 2", "(1, 1537228672809129302")),
        "the product of the shape overflows",
    ),
    "nine axes": (npy_with(GOOD_HEADER.replace("(1, 2", "(1, 1, 1, 1, 1, 1, 2")), "more than 8 dimensions"),
    "a number as shape": (npy_with(GOOD_HEADER.replace("(1, 2, 1, 3)", "(6)")), "shape must be a tuple"),
    "a list as shape": (npy_with(GOOD_HEADER.replace("(1, 2, 1, 3)", "[6,]")), "shape must be a tuple"),
    "key twice": (npy_with(GOOD_HEADER.replace("'shape'", "'descr': '<f4', 'shape'")), "byte 51: the key is given twice"),
    "unknown key": (npy_with(GOOD_HEADER.replace("'shape'", "'shape2'")), "byte 51: the key is not descr"),
    "missing key": (npy_with("{'descr': '<f4', 'shape': (1, 2, 1, 3), }"), "byte 10: the header lacks the key fortran_order"),
    "missing comma": (npy_with(GOOD_HEADER.replace("False, ", "False ")), "byte 50: a comma or } is missing"),
    "missing colon": (npy_with(GOOD_HEADER.replace("'descr':", "'descr'")), "a colon is missing"),
    "open string": (npy_with("{'descr"), "byte 17: the header ends within a string"),
    "open tuple": (npy_with(GOOD_HEADER[:-5]), "byte \\d+: "),
    "text after": (npy_with(GOOD_HEADER + "x"), "byte 75: bytes follow the dictionary"),
    "zero byte": (npy_with(GOOD_HEADER + "\0"), "byte 75: bytes follow the dictionary"),
    "long key": (npy_with("{'" + "d" * 5000 + "': 1}"), "byte 11: the key is not descr"),
    "record": (npy_with(GOOD_HEADER.replace("'<f4'", "[('x', '<f4')]")), "byte 20: descr must be"),
    "native order": (npy_with(GOOD_HEADER.replace("<f4", "=f4")), "byte 20: descr must be"),
}


@pytest.mark.parametrize("name", NPY_FAULTS)
def test_faults_of_npy(workshop, name):
    content, sentence = NPY_FAULTS[name]
    assert not workshop("npy", content)
    assert re.search(r"--q: bad: .*" + sentence, workshop.sentence), workshop.sentence


def judge_npy(content):
    """What NumPy reads, if it reads all of it as an array in C order of a type that the program knows."""
    stream = io.BytesIO(content)
    try:
        array = np.lib.format.read_array(stream, allow_pickle=False)
    except Exception:  # NumPy has many ways to refuse a header
        return None
    return array if array.dtype.str in ("<f4", "<f8", "<f2") and not stream.read() else None


@settings(max_examples=300)
@given(changes, st.sampled_from([(1, 0), (2, 0)]))
@example([("replace", 0.9, 65)], (1, 0))
def test_mutated_npy(workshop, changes, version):
    content = mutate(npy_bytes(Q, version), changes)
    if workshop("npy", content):
        array = judge_npy(content)
        assert array is not None and array.shape == SHAPE
        assert_output(workshop, TENSORS | {"q": array})


@settings(max_examples=100)
@given(st.lists(st.one_of(st.integers(-3, 5), st.integers(-(2**70), 2**70)), max_size=10), st.sampled_from(["<f4", "<f8", "<f2"]))
def test_shapes_that_lie(workshop, shape, descr):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({''.join(f'{n}, ' for n in shape)}), }}"
    if workshop("npy", npy_with(header)):
        assert tuple(shape) == SHAPE and descr == "<f4"
