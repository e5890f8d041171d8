""".safetensors files that lie: headers broken by hand and by hypothesis, given to the program.

The package safetensors is the judge: what the program takes, it must take with the same meaning. Whatever the program does
not take ends with exit code 2 and a sentence that names the file; never with a crash, never with a file left behind.
"""

import json
import re
import struct

import numpy as np
import pytest
import safetensors
from broken_files import TENSORS, assert_output, changes, mutate, workshop  # noqa: F401
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save

pytestmark = pytest.mark.program


def safetensors_with(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


GOOD = save(TENSORS)
LENGTH = struct.unpack("<Q", GOOD[:8])[0]
HEADER, DATA = json.loads(GOOD[8 : 8 + LENGTH]), GOOD[8 + LENGTH :]


def changed(key, **fields):
    """The good header with some fields of one tensor changed."""
    return safetensors_with(HEADER | {key: HEADER[key] | fields}, DATA)


def text_changed(old, new):
    text = json.dumps(HEADER)
    assert old in text
    return safetensors_with(text.replace(old, new, 1).encode("utf-8", "surrogatepass"), DATA)


def test_good_safetensors(workshop):
    padded = json.dumps(HEADER).encode() + b" " * 37
    with_text = safetensors_with({"__metadata__": {"format": "np", "\u00e9": "\U0001f600 \\u0000x"}} | HEADER, DATA)
    empty = HEADER | {
        "empty": {"dtype": "F32", "shape": [0, 5], "data_offsets": [0, 0]},
        "more": {"dtype": "I8", "shape": [3], "data_offsets": [len(DATA), len(DATA) + 3]},
    }
    for content in (GOOD, safetensors_with(padded, DATA), with_text, safetensors_with(empty, DATA + b"abc")):
        assert safetensors.deserialize(content)
        assert workshop("safetensors", content), workshop.sentence
        assert_output(workshop, TENSORS)


q_end = HEADER["q"]["data_offsets"][1]
order = sorted(HEADER, key=lambda name: HEADER[name]["data_offsets"])
SAFETENSORS_FAULTS = {
    "empty file": (b"", "byte 0: the file ends before the length"),
    "cut length": (GOOD[:7], "byte 7: the file ends before the length"),
    "length beyond the file": (safetensors_with(HEADER, DATA, 10**6), "byte 0: header length 1000000 goes beyond the end"),
    "largest length": (safetensors_with(HEADER, DATA, 2**64 - 1), "byte 0: header length 18446744073709551615 goes beyond"),
    "length that wraps": (safetensors_with(HEADER, DATA, 2**64 - 8), "byte 0: header length"),
    "length of 0": (safetensors_with(b"", DATA), "byte 8: the header does not begin with {"),
    "cut header": (safetensors_with(HEADER, DATA, 100), "byte \\d+: the header is not valid JSON"),
    "cut data": (GOOD[:-1], f"{order[-1]}: data_offsets end at {len(DATA)}, the data of the file at {len(DATA) - 1}"),
    "trailing data": (GOOD + b"\0", f"the tensors end at byte {len(DATA)} of the data, the file holds {len(DATA) + 1}"),
    "no tensor, data": (safetensors_with({}, b"1234"), "the tensors end at byte 0 of the data, the file holds 4"),
    "no tensor": (safetensors_with({}), "q is missing"),
    "space before": (safetensors_with(b" " + json.dumps(HEADER).encode(), DATA), "byte 8: the header does not begin with {"),
    "byte order mark": (
        safetensors_with(b"\xef\xbb\xbf" + json.dumps(HEADER).encode(), DATA),
        "byte 8: the header does not begin",
    ),
    "list": (safetensors_with(b"[]"), "byte 8: the header does not begin with {"),
    "text after": (safetensors_with(json.dumps(HEADER).encode() + b" {}", DATA), "the header is not valid JSON"),
    "zero bytes after": (
        safetensors_with(json.dumps(HEADER).encode() + b"\0\0", DATA),
        "byte \\d+: the header holds a control character",
    ),
    "latin1": (
        safetensors_with(json.dumps(HEADER).replace('"q"', '"\xe9"').encode("latin1"), DATA),
        "byte \\d+: the header is not UTF-8",
    ),
    "surrogate": (text_changed('"q"', '"\ud800"'), "byte \\d+: the header is not UTF-8"),
    "escaped surrogate": (text_changed('"q"', '"\\ud800"'), "not valid JSON"),
    "overlong": (safetensors_with(json.dumps(HEADER).encode().replace(b'"q"', b'"\xc1\xb1"'), DATA), "not UTF-8"),
    "escaped zero": (text_changed('"q"', '"q\\u0000x"'), "byte \\d+: the header holds an escaped zero"),
    "line break in a key": (text_changed('"q"', '"q\n"'), "byte \\d+: the header holds a control character"),
    "deep": (safetensors_with(b'{"q":' + b"[" * 100000 + b"]" * 100000 + b"}", DATA), "not valid JSON"),
    "open and deep": (safetensors_with(b'{"q":' + b'{"a":' * 100000), "not valid JSON"),
    "key twice": (
        safetensors_with(
            json.dumps(HEADER).encode()[:-1] + b', "z": {"dtype":"F32","shape":[0],"data_offsets":[0,0]}' * 2 + b"}", DATA
        ),
        "key z is given twice",
    ),
    "q twice": (
        safetensors_with(json.dumps(HEADER).encode()[:-1] + b', "q":' + json.dumps(HEADER["q"]).encode() + b"}", DATA),
        "overlapping|given twice",
    ),
    "dtype twice": (text_changed('"dtype"', '"dtype": "F32", "dtype"'), "dtype is given twice"),
    "metadata twice": (
        safetensors_with(b'{"__metadata__":{},"__metadata__":{},' + json.dumps(HEADER).encode()[1:], DATA),
        "key __metadata__ is given twice",
    ),
    "metadata of numbers": (
        safetensors_with(HEADER | {"__metadata__": {"a": 1}}, DATA),
        "__metadata__ is not an object of strings",
    ),
    "metadata is a list": (safetensors_with(HEADER | {"__metadata__": ["a"]}, DATA), "__metadata__ is not an object of strings"),
    "entry is a number": (safetensors_with(HEADER | {"q": 3}, DATA), "q: is not an object"),
    "entry is a list": (safetensors_with(HEADER | {"q": []}, DATA), "q: is not an object"),
    "no dtype": (text_changed('"dtype"', '"type"'), "dtype is missing"),
    "case of a name": (text_changed('"shape"', '"Shape"'), "shape is missing"),
    "dtype is a number": (changed("q", dtype=32), "q: dtype is not a string"),
    "unknown dtype": (changed("q", dtype="F31"), "q: element type F31 must be F32, F64, F16 or BF16"),
    "escape codes": (changed("q", dtype="\x1b[2J"), "q: element type .\\[2J must be"),
    "other dtype": (changed("q", dtype="F16"), "q: data_offsets hold 24 bytes, shape and dtype ask for 12"),
    "shape is a number": (changed("q", shape=6), "q: shape is not a list"),
    "negative size": (changed("q", shape=[1, -2, 1, -3]), r"q: shape\[1\] is not a whole number"),
    "minus zero": (text_changed("[0,", "[-0,") if "[0," in json.dumps(HEADER) else changed("q", shape=[-1]), "whole number"),
    "fraction": (changed("q", shape=[1, 2.5, 1, 3]), "byte \\d+: a number of the header is not a plain decimal integer"),
    "whole fraction": (changed("q", shape=[1, 2.0, 1, 3]), "not a plain decimal integer"),
    "exponent": (text_changed("[1, 2, 1, 3]", "[1, 2e0, 1, 3]"), "not a plain decimal integer"),
    "leading zero": (text_changed("[1, 2, 1, 3]", "[1, 02, 1, 3]"), "not a plain decimal integer"),
    "size is a string": (changed("q", shape=[1, "2", 1, 3]), r"q: shape\[1\] is not a whole number"),
    "size beyond 2^53": (changed("q", shape=[1, 2**53 + 2, 1, 3]), r"q: shape\[1\] is not a whole number from 0 to 2\^53"),
    "size of 400 digits": (changed("q", shape=[1, 10**400, 1, 3]), r"q: shape\[1\]|not valid JSON"),
    "overflowing product": (changed("q", shape=[2**50, 2**50]), "q: the product of the shape overflows"),
    "nine axes": (changed("q", shape=[1] * 7 + [2, 3]), "q: shape has more than 8 dimensions"),
    "three offsets": (changed("q", data_offsets=[0, 24, 24]), "q: data_offsets is not a pair"),
    "offsets backwards": (changed("q", data_offsets=[q_end, q_end - 24]), "q: data_offsets begin at .* after their end"),
    "offset beyond": (
        changed("q", data_offsets=[len(DATA), len(DATA) + 24]),
        "q: data_offsets end at .*, the data of the file at",
    ),
    "offset beyond 2^53": (changed("q", data_offsets=[2**63, 2**63 + 24]), "q: data_offsets is not a pair"),
    "negative offset": (changed("q", data_offsets=[-24, 0]), "q: data_offsets is not a pair"),
    "overlap": (changed("q", data_offsets=HEADER["k"]["data_offsets"]), "overlapping|leaving a gap"),
    "overlap within": (
        safetensors_with(
            {"q": HEADER["q"] | {"data_offsets": [0, 24]}, "z": {"dtype": "F32", "shape": [2], "data_offsets": [16, 24]}},
            DATA[:24],
        ),
        "z: data_offsets begin at 16, overlapping the end 24 of the tensor before",
    ),
    "the same place": (
        safetensors_with({name: HEADER["q"] | {"data_offsets": [0, 24]} for name in "qk"}, DATA[:24]),
        "[qk]: data_offsets begin at 0, overlapping the end 24",
    ),
    "gap": (
        safetensors_with({"q": HEADER["q"] | {"data_offsets": [4, 28]}}, b"\0" * 28),
        "q: data_offsets begin at 4, leaving a gap after the end 0",
    ),
}


@pytest.mark.parametrize("name", SAFETENSORS_FAULTS)
def test_faults_of_safetensors(workshop, name):
    content, sentence = SAFETENSORS_FAULTS[name]
    assert not workshop("safetensors", content)
    assert re.search(sentence, workshop.sentence), workshop.sentence


NUMPY_TYPES = {"F32": np.float32, "F64": np.float64, "F16": np.float16}


def judge_safetensors(content):
    try:
        entries = safetensors.deserialize(content)
    except safetensors.SafetensorError:
        return None
    return {
        name: np.frombuffer(t["data"], NUMPY_TYPES[t["dtype"]]).reshape(t["shape"])
        for name, t in entries
        if t["dtype"] in NUMPY_TYPES
    }


@settings(max_examples=400)
@given(changes)
@example([("replace", 0.0, 0)])
def test_mutated_safetensors(workshop, changes):
    content = mutate(GOOD, changes)
    if workshop("safetensors", content):
        tensors = judge_safetensors(content)
        assert tensors is not None, "the package refuses it"
        if {"q", "k", "v", "beta"} <= tensors.keys():
            assert_output(workshop, tensors)


sizes = st.one_of(st.integers(-2, 6), st.integers(2**31 - 2, 2**31 + 2), st.integers(2**52, 2**70), st.none(), st.booleans())
offsets = st.one_of(st.integers(-2, len(DATA) + 8), st.integers(2**53, 2**66))


@settings(max_examples=200)
@given(
    st.sampled_from(sorted(HEADER)),
    st.lists(sizes, max_size=6),
    st.lists(offsets, min_size=1, max_size=3),
    st.sampled_from(["F32", "F64", "BF16", "I64", "", None]),
)
def test_fields_that_lie(workshop, key, shape, where, dtype):
    content = changed(key, shape=shape, data_offsets=where, dtype=dtype)
    if workshop("safetensors", content):
        assert judge_safetensors(content) is not None


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100)
@given(st.dictionaries(st.sampled_from(["q", "k", "v", "beta", "__metadata__", "x"]), junk, max_size=6))
def test_any_json(workshop, header):
    assert not workshop("safetensors", safetensors_with(header))
