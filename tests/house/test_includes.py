"""Includes between folders go one way: CONTRIBUTING.md, "Folders".

    api -> drive, staged -> isa/table.h -> stage -> chunk -> base -> the public headers
    api -> double -> drive/drive.h, drive/step.h, chunk, base
    src/ffi -> the public headers
    cli -> lm -> io; cli -> ref; cli, lm and mpi -> the public headers; ref and io stand alone
"""

import re

import pytest

GROUND = ["src/chunk", "src/base", "include"]
# The folders, or single files, that the sources of a folder may include from, besides their own folder.
ALLOWED = {
    "include": [],
    "src/base": ["include"],
    "src/chunk": ["src/base", "include"],
    "src/stage": GROUND,
    "src/isa": ["src/stage", *GROUND],
    "src/drive": ["src/isa/table.h", "src/stage", *GROUND],
    "src/double": ["src/drive/drive.h", "src/drive/step.h", *GROUND],
    "src/staged": ["src/isa/table.h", "src/stage", *GROUND],
    "src/api": ["src/drive", "src/double", "src/staged", "src/isa/table.h", "src/stage", *GROUND],
    "src/ffi": ["include"],
    "ref": [],
    "io": [],
    "lm": ["io", "include"],
    "mpi": ["include"],
    "cli": ["lm", "io", "ref", "include"],
    "examples": ["include"],
}
SEARCH = ["src", "include", "io", "lm", "mpi", "ref", "."]


def folder_of(name):
    return max((folder for folder in ALLOWED if name.startswith(folder + "/")), key=len, default=None)


def resolve(name, header, exists):
    """The file that a quoted include means: beside the including file first, then along the search path."""
    for folder in [name.rpartition("/")[0], *SEARCH]:
        path = f"{folder}/{header}".removeprefix("./")
        if exists(path):
            return path
    return None


def wrong_includes(name, text, exists):
    """Sentences about the includes of one file that point back, sideways or nowhere."""
    folder, wrong = folder_of(name), []
    for header in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        target = resolve(name, header, exists)
        if target is None or ".." in header:
            wrong.append(f"{name} includes {header}, which is no file on the search path")
        elif folder_of(target) != folder and not any(target == a or target.startswith(a + "/") for a in ALLOWED[folder]):
            wrong.append(f"{name} includes {target}; {folder} may include from {ALLOWED[folder] or 'nowhere else'}")
    return wrong


def test_includes_go_one_way(source, files):
    sources = [name for name in files if name.endswith((".c", ".h", ".inc")) and folder_of(name)]
    assert len(sources) > 20
    wrong = [line for name in sources for line in wrong_includes(name, (source / name).read_text(), lambda f: (source / f).exists())]
    assert not wrong, "\n".join(wrong)


def test_every_source_folder_has_a_rule(files):
    folders = {name.rpartition("/")[0] for name in files if name.startswith("src/") and name.endswith((".c", ".h"))}
    assert folders <= set(ALLOWED), "add the new folder to ALLOWED here, to CONTRIBUTING.md and to src/README.md"


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("src/base/view.h", "chunk/records.h"),
        ("src/stage/matrix.h", "isa/table.h"),
        ("src/drive/forward.c", "isa/vec.h"),
        ("src/drive/forward.c", "staged/seed.h"),
        ("src/double/step.c", "isa/table.h"),
        ("src/double/step.c", "drive/chunks.h"),
        ("ref/token.c", "gdn2.h"),
        ("src/ffi/rule.c", "base/error.h"),
        ("cli/run.c", "base/error.h"),
        ("lm/layer.c", "ref.h"),
        ("mpi/scan.c", "base/error.h"),
        ("src/api/forward.c", "../drive/forward.h"),
        ("src/api/forward.c", "nowhere.h"),
    ],
)
def test_a_planted_include_is_caught(name, header):
    known = {"src/chunk/records.h", "src/isa/table.h", "src/isa/vec.h", "src/staged/seed.h", "include/gdn2.h", "src/base/error.h",
             "ref/ref.h", "src/api/../drive/forward.h", "src/drive/chunks.h"}
    assert len(wrong_includes(name, f'#include <math.h>\n  # include "{header}"\n', known.__contains__)) == 1


def test_a_right_include_passes():
    known = {"src/isa/table.h", "include/gdn2.h"}
    assert wrong_includes("src/drive/forward.c", '#include "isa/table.h"\n#include "gdn2.h"\n', known.__contains__) == []
