"""The byte layouts of gdn2/_layout.py are those of the C headers."""

import json
import os
import subprocess

import pytest
from conftest import SOURCE

from gdn2 import _layout

ENUMS = {
    "GDN2_F32": _layout.DTYPES["float32"],
    "GDN2_BF16": _layout.DTYPES["bfloat16"],
    "GDN2_F16": _layout.DTYPES["float16"],
    "GDN2_F64": _layout.DTYPES["float64"],
    "GDN2_I32": _layout.INDEX_TYPES["int32"],
    "GDN2_I64": _layout.INDEX_TYPES["int64"],
    "GDN2_HEADS_GROUPED": _layout.HEAD_MAPS["grouped"],
    "GDN2_HEADS_TILED": _layout.HEAD_MAPS["tiled"],
    "GDN2_DECAY_LOG": _layout.DECAYS["log"],
    "GDN2_DECAY_SOFTPLUS": _layout.DECAYS["softplus"],
    "GDN2_DECAY_BOUNDED": _layout.DECAYS["bounded"],
    "GDN2_GATE_GIVEN": _layout.GATES["given"],
    "GDN2_GATE_SIGMOID": _layout.GATES["sigmoid"],
    "GDN2_GATE_TWO_SIGMOID": _layout.GATES["two_sigmoid"],
    "GDN2_NORM_SILU": _layout.NORM_GATES["silu"],
    "GDN2_NORM_SIGMOID": _layout.NORM_GATES["sigmoid"],
    **{f"GDN2_ISA_{name.upper()}": number for name, number in _layout.ISAS.items()},
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """What a C compiler says of the structs and numbers, by name."""
    folder = tmp_path_factory.mktemp("layout")
    lines = ["#include <gdn2.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {", '  printf("{");']
    for struct, layout in _layout.STRUCTS.items():
        lines.append(f'  printf("\\"{struct}\\": [%zu, 0], ", sizeof({struct}));')
        for field in layout.offsets():
            size = f"sizeof((({struct} *)0)->{field})"
            lines.append(f'  printf("\\"{struct}.{field}\\": [%zu, %zu], ", offsetof({struct}, {field}), {size});')
    lines += [f'  printf("\\"{name}\\": [%d, 0], ", (int){name});' for name in ENUMS]
    lines += ['  printf("\\"end\\": 0}");', "  return 0;", "}", ""]
    source, program = folder / "layout.c", folder / "layout"
    source.write_text("\n".join(lines))
    compiler = os.environ.get("GDN2_CC", "cc")
    subprocess.run([compiler, "-std=c11", f"-I{SOURCE / 'include'}", source, "-o", program], check=True)
    return json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize("struct", _layout.STRUCTS)
def test_every_field_lies_where_c_puts_it(compiled, struct):
    layout = _layout.STRUCTS[struct]
    assert layout.size == compiled[struct][0]
    wrong = {name: (place, compiled[f"{struct}.{name}"]) for name, place in layout.offsets().items()}
    wrong = {name: both for name, both in wrong.items() if list(both[0]) != both[1]}
    assert not wrong


def test_no_field_is_missing():
    """Fields and padding fill the structs: gaps are smaller than the alignment."""
    for struct, layout in _layout.STRUCTS.items():
        end = 0
        for name, (offset, size) in layout.offsets().items():
            assert 0 <= offset - end < 8, f"{struct}: a gap before {name}"
            end = offset + size
        assert layout.size - end < 8, f"{struct}: a gap at its end"


def test_numbers_are_those_of_the_header(compiled):
    assert {name: compiled[name][0] for name in ENUMS} == ENUMS


def test_a_planted_fault_is_found(compiled):
    planted = _layout.Layout(*_layout.EXEC.fields[:1], ("isa", "q"), *_layout.EXEC.fields[2:])
    assert planted.size != compiled["gdn2_exec"][0]
    assert list(planted.offsets()["isa"]) != compiled["gdn2_exec.isa"]
