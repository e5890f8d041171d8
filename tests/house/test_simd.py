"""Instructions beyond the baseline stay inside the objects of their instruction set, so that an old processor never meets one."""

import platform
import re

import pytest

# Every AVX, AVX2, FMA and AVX-512 mnemonic begins with v; the few others that do belong to no vector set.
NOT_VECTOR = re.compile(r"^(verr|verw|vm(call|launch|resume|xoff|xon|read|write|ptrld|ptrst|clear|func|run|load|save|mcall))\b")
INSTRUCTION = re.compile(r"^\s+[0-9a-f]+:\t[^\t]*\t(\S+)(.*)$", re.MULTILINE)

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="objects of x86 only")


def vector_instructions(run, path):
    """The instructions of an object that need AVX or later."""
    found = []
    for mnemonic, operands in INSTRUCTION.findall(run("objdump", "-d", "--wide", path)):
        beyond = mnemonic.startswith("v") and not NOT_VECTOR.match(mnemonic)
        if beyond or re.search(r"%[yz]mm|%k[0-7]", operands):
            found.append(mnemonic + operands)
    return found


def objects(build):
    found = sorted((build / "src" / "CMakeFiles" / "gdn2_objects.dir").rglob("*.o"))
    assert found, "no objects of the library in the build folder"
    return found


def test_common_objects_use_the_baseline_only(run, build):
    common = [path for path in objects(build) if not path.name.startswith("avx")]
    assert {"generic.c.o", "choose.c.o"} <= {path.name for path in common}
    for path in common:
        assert not vector_instructions(run, path)[:5], path


@pytest.mark.parametrize("isa", ["avx2", "avx512"])
def test_vector_objects_are_seen_as_such(run, build, isa):
    """The same look at the objects that must have them: the test above can fail."""
    (path,) = [path for path in objects(build) if path.name == f"{isa}.c.o"]
    found = vector_instructions(run, path)
    assert len(found) > 100 and any("fmadd" in text for text in found)
    assert any("%zmm" in text for text in found) == (isa == "avx512")
