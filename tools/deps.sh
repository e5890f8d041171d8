#!/bin/sh
# tools/deps.sh [build] [test] [ci] [aarch64]: sees that what each stage needs is on the machine, and installs Debian packages for
# what is not. Everything is looked for by use (a command that runs, a header that is found), not by package name, so that tools
# installed another way count. Says nothing and touches no network when nothing is missing.
set -eu

missing=""
# need PACKAGE COMMAND...: PACKAGE is missing unless COMMAND succeeds.
need() {
  package=$1
  shift
  "$@" >/dev/null 2>&1 || missing="$missing $package"
}
compiles() { printf '#include <stdio.h>\nint main(void) { return 0; }\n' | "$1" -x "$2" -fsyntax-only -; }
# 3.25 or later, as the top CMakeLists.txt asks.
cmake_new_enough() {
  cmake --version | awk 'NR == 1 { split($3, v, "."); new = v[1] > 3 || (v[1] == 3 && v[2] >= 25) } END { exit !new }'
}
links_arm64() { printf 'int main(void) { return 0; }\n' | aarch64-linux-gnu-gcc -x c -o /dev/null - "$@"; }
mpi_ready() { printf '#include <mpi.h>\nint main(void) { return 0; }\n' | mpicc -x c -fsyntax-only - && mpiexec --version; }
venv_ready() {
  for python in python3 python3.13 python3.12 python3.11; do
    "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' && return 0
  done
  return 1
}

for stage in "${@:-build}"; do
  case $stage in
  build)
    need cmake cmake_new_enough
    need ninja-build ninja --version
    need "gcc libc6-dev" compiles gcc c
    need pkg-config pkg-config --version
    need libcjson-dev pkg-config --exists libcjson
    need libopenblas-dev pkg-config --exists openblas
    ;;
  test)
    need g++ compiles g++ c++
    need libcmocka-dev pkg-config --exists cmocka
    need "libopenmpi-dev openmpi-bin" mpi_ready
    need binutils objdump --version
    need python3-venv venv_ready
    ;;
  ci)
    need clang compiles clang c
    need libomp-dev sh -c 'echo "#include <omp.h>" | clang -fopenmp -x c -fsyntax-only -'
    need clang-format clang-format --version
    need clang-tidy clang-tidy --version
    need git git --version
    need qemu-user qemu-x86_64 --version
    ;;
  aarch64)
    need cmake cmake_new_enough
    need ninja-build ninja --version
    need pkg-config pkg-config --version
    need "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" links_arm64
    need qemu-user qemu-aarch64 --version
    need libc6:arm64 test -e /lib/ld-linux-aarch64.so.1
    need libgomp1:arm64 test -e /usr/lib/aarch64-linux-gnu/libgomp.so.1
    need libcmocka-dev:arm64 links_arm64 -lcmocka
    need libcjson-dev:arm64 links_arm64 -include cjson/cJSON.h -lcjson
    need libopenblas-dev:arm64 links_arm64 -lopenblas
    ;;
  *)
    echo "tools/deps.sh: unknown stage \"$stage\"; it must be build, test, ci or aarch64" >&2
    exit 2
    ;;
  esac
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
  echo "tools/deps.sh: missing on this machine (names of Debian packages):$missing" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "tools/deps.sh: run as root: apt-get install$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi
echo "installing:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1; }
case $missing in *:arm64*) $as_root dpkg --add-architecture arm64 ;; esac
# shellcheck disable=SC2086 # one word a package
if ! { apt update && apt install --yes --no-install-recommends $missing; }; then
  tail -n 20 "$log" >&2
  echo "tools/deps.sh: could not install:$missing" >&2
  exit 1
fi
