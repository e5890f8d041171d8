"""The documents say what is there: links, the map of the sources, the example, the commands."""

import re
from fnmatch import fnmatchcase

import pytest
from test_install import REMEMBERED


def documents(files):
    return [name for name in files if name.endswith(".md")]


def test_links_lead_to_files(source, files):
    broken = []
    for name in documents(files):
        for target in re.findall(r"\]\(([^)#\s]+)", (source / name).read_text()):
            if not target.startswith(("http://", "https://", "mailto:")) and not (source / name).parent.joinpath(target).exists():
                broken.append(f"{name}: {target}")
    assert not broken, broken


def paths_in(text):
    """What is written between backticks and looks like a file: folder/name.ext, possibly with an asterisk."""
    return [word for word in re.findall(r"`([^`\s]+)`", text) if re.fullmatch(r"[\w.*/-]*[\w*-]\.(c|h|inc|md|txt|py|csv)", word)]


def test_the_map_names_files_that_exist(source, files):
    known = {name.removeprefix("src/") for name in files} | set(files)
    named = paths_in((source / "src" / "README.md").read_text())
    assert len(named) > 15
    missing = [word for word in named if not any(fnmatchcase(name, word) for name in known)]
    assert not missing, f"src/README.md names what is not there: {missing}"


def test_the_map_names_every_source(source, files):
    named = paths_in((source / "src" / "README.md").read_text())
    sources = [name.removeprefix("src/") for name in files if re.match(r"src/.*\.(c|h|inc)$", name)]
    missing = [name for name in sources if not any(fnmatchcase(name, word) for word in named)]
    assert not missing, f"src/README.md does not lead to: {missing}"


def test_readme_shows_the_example_and_what_it_prints(source):
    readme = (source / "README.md").read_text()
    assert "```c\n" + (source / "examples" / "remember.c").read_text() + "```" in readme
    assert f"```\n{REMEMBERED}```" in readme


@pytest.mark.parametrize("document", ["README.md", "CONTRIBUTING.md"])
def test_commands_of_make_exist(source, document):
    targets = set(re.findall(r"^([a-z]+):", (source / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^ *make ([a-z]+)|`make ([a-z]+)", (source / document).read_text(), re.MULTILINE))
    named = {a or b for a, b in named}
    assert named and named <= targets


def test_options_of_cmake_are_documented(source):
    options = re.findall(r"^(?:option|set)\((GDN2_\w+)", (source / "CMakeLists.txt").read_text(), re.MULTILINE)
    readme = (source / "README.md").read_text()
    missing = [name for name in options if f"`{name}`" not in readme]
    assert options and not missing, f"README.md, build options: {missing}"


def test_changelog_has_the_version(source):
    header = (source / "include" / "gdn2.h").read_text()
    version = ".".join(re.findall(r"define GDN2_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
    assert re.search(rf"^## \[{re.escape(version)}\]", (source / "CHANGELOG.md").read_text(), re.MULTILINE)
