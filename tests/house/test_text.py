"""Every tracked file is plain, portable text of a readable size."""

import re

import pytest

# A file longer than the limit needs its reason here.
LINES = 400
LONGER = {}
BYTES = 200_000

FORBIDDEN = {
    "an absolute path of one machine": re.compile(r"(?<![\w.:/])/(home|Users|root|work|mnt)/\w"),
    "a trailing blank": re.compile(r"[ \t]+$", re.MULTILINE),
    "a carriage return": re.compile("\r"),
    "a conflict marker": re.compile(r"^(<{7}|>{7}) ", re.MULTILINE),
    "switched-off code": re.compile(r"^\s*#\s*if\s+0\b", re.MULTILINE),
    "a note instead of work": re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"),
}


def faults(data):
    """What is wrong with the bytes of one file, in words."""
    if b"\0" in data:
        return ["it is binary"]
    text = data.decode("utf-8")
    found = [what for what, pattern in FORBIDDEN.items() if pattern.search(text)]
    if text and not text.endswith("\n"):
        found.append("no newline at its end")
    if len(data) > BYTES:
        found.append(f"more than {BYTES} bytes")
    return found


def test_files_are_plain_text(source, files):
    wrong = {name: found for name in files if (found := faults((source / name).read_bytes()))}
    assert not wrong, "\n".join(f"{name}: {', '.join(found)}" for name, found in wrong.items())


def test_sources_are_short(source, files):
    code = [name for name in files if name.endswith((".c", ".h", ".inc", ".py", ".sh"))]
    long = {name: count for name in code if (count := len((source / name).read_bytes().splitlines())) > LINES}
    assert set(long) <= set(LONGER), f"split these, or give the reason in LONGER: {long}"
    assert set(LONGER) <= set(long), "LONGER names a file that is short or gone"


@pytest.mark.parametrize(
    "text",
    ["at /ho" "me/somebody/x\n", "x \n", "x\r\n", "#if" " 0\n", "// TO" "DO\n", "no newline", "\0", "<<<<" "<<< mine\n"],
)
def test_a_planted_fault_is_found(text):
    assert len(faults(text.encode())) == 1


def test_ordinary_text_passes():
    assert faults("see docs/work/plan.md and http://example.org/home/page; #if 01\n".encode()) == []
