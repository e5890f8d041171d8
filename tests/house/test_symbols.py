"""The shared library exports the names in symbols.txt and no others.

To change the interface on purpose, write the new list and review its difference:
    nm -D --defined-only build/libgdn2.so | awk '{ print $3 }' | LC_ALL=C sort > tests/house/symbols.txt

The names with gdn2_xla_ are there all together where the headers of jaxlib were found (GDN2_XLA_FFI), else none of them.
"""

from pathlib import Path

HANDLER = "gdn2_xla_"
EXPECTED = Path(__file__).with_name("symbols.txt")


def exported(run, library):
    return sorted(line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines())


def test_exported_symbols_are_the_list(run, library):
    names = exported(run, library)
    with_handlers = any(name.startswith(HANDLER) for name in names)
    assert names == [name for name in EXPECTED.read_text().split() if with_handlers or not name.startswith(HANDLER)]


def test_exported_symbols_have_the_prefix():
    names = EXPECTED.read_text().split()
    assert names and all(name.startswith("gdn2_") for name in names)


def test_every_exported_symbol_is_declared(source):
    """In a public header; a handler, which no program calls, in its own file."""
    headers = "".join(path.read_text() for path in [*(source / "include").glob("*.h"), *(source / "src" / "ffi").glob("*.c")])
    missing = [name for name in EXPECTED.read_text().split() if f"{name}(" not in headers]
    assert not missing, f"exported but not in a public header: {missing}"


TABLES = {
    "avx512": ["gdn2_table_avx512", "gdn2_table_avx512_bf16"],
    "avx512_bf16": [f"gdn2_{part}_stages_avx512_bf16" for part in ("conv", "norm", "step")],
}


def test_every_instruction_set_shows_its_table_only(run, build):
    """Code compiled for one instruction set must not be reachable by another name: the linker could pick it for everybody."""
    for path in sorted(build.glob("src/CMakeFiles/gdn2_objects.dir/isa/*.c.o")):
        isa = path.name.split(".")[0]
        names = [line.split()[-1] for line in run("nm", "--defined-only", "--extern-only", path).splitlines()]
        if isa != "choose":
            assert names == TABLES.get(isa, [f"gdn2_table_{isa}"]), path
