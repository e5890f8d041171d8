# A thin front to CMake for the everyday commands; the build itself is described in the CMakeLists.txt files.
PREFIX ?= /usr/local
DESTDIR ?=
# The text `make demo` reads; empty: the documentation of this repository.
TEXT ?=
# Options of `make bench`.
BENCH ?=

.PHONY: build demo test test-aarch64 bench wheel install clean deps format
.NOTPARALLEL:

build:
	@sh tools/deps.sh build
	@test -f build/build.ninja || cmake --preset release -DGDN2_TESTS=OFF >/dev/null
	@cmake --build build

demo: build
	@sh tools/demo.sh build "$(TEXT)"

test: deps
	@cmake --preset release -DGDN2_TESTS=ON >/dev/null
	@cmake --build build
	@ctest --test-dir build --output-on-failure -j2

# The C tests on 64-bit ARM, cross-built and emulated: a quarter of an hour.
test-aarch64:
	@sh tools/qemu.sh aarch64

# Runs the benchmark where the program has one; says so and fails where it has none.
bench: build
	@build/gdn2 bench --help >/dev/null 2>&1 || \
	  { echo "bench: this version of the program has no benchmark; docs/status.md says what exists" >&2; exit 2; }
	@build/gdn2 bench $(BENCH)

# The Python package, into dist/; pip install . does the same in place.
wheel:
	@sh tools/deps.sh build test
	@sh tools/wheel.sh dist

install: build
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

clean:
	@cmake -E rm -rf build

deps:
	@sh tools/deps.sh build test
	@sh tools/venv.sh build/venv

format:
	@git ls-files '*.c' '*.h' '*.inc' | xargs clang-format -i
