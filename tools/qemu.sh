#!/bin/sh
# The tests on processors that this machine is not, under qemu-user. The first argument says which:
#
#   sh tools/qemu.sh aarch64 [CTEST_OPTION...]    64-bit ARM: cross build in build-aarch64, all C tests, with generic C and NEON
#   sh tools/qemu.sh x86-64 [PROGRAM...]          the C tests of build/ on processors without AVX, and with AVX2 only; the library
#                                                 chooses its instruction set itself (PROGRAM: names of some of build/tests)
#
# Both end with 0 only if everything passed. Emulation takes ten times as long, that of AVX2 a hundred times.
set -eu
cd "$(dirname "$0")/.."
what=${1:-}
[ $# -eq 0 ] || shift

aarch64() {
  sh tools/deps.sh aarch64
  cmake --preset aarch64 >/dev/null
  cmake --build --preset aarch64 -- --quiet
  ctest --preset aarch64 "$@"
}

# on_model CPU ISA PROGRAM...: the programs on a processor model of qemu, where the library must choose ISA.
on_model() {
  cpu=$1 isa=$2
  shift 2
  run="qemu-x86_64 -cpu $cpu -E GDN2_TEST_EMULATOR=1 -E OMP_WAIT_POLICY=passive -U GDN2_ISA"
  echo "$cpu: $isa"
  if ! $run build/gdn2 info 2>/dev/null | grep -qx "isa  *$isa"; then
    echo "tools/qemu.sh: on $cpu the library does not choose $isa" >&2
    return 1
  fi
  for program; do
    begin=$(date +%s)
    if $run "build/tests/${program##*/}" >"$log" 2>&1; then
      echo "  ${program##*/}: passed ($(($(date +%s) - begin)) s)"
    else
      cat "$log"
      echo "  ${program##*/}: FAILED on $cpu"
      failed=1
    fi
  done
}

x86_64() {
  [ $# -gt 0 ] || set -- build/tests/test_*
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  failed=0
  on_model Nehalem generic "$@"
  on_model Haswell avx2 "$@"
  return $failed
}

case $what in
aarch64) aarch64 "$@" ;;
x86-64) x86_64 "$@" ;;
*)
  echo "usage: sh tools/qemu.sh aarch64 [CTEST_OPTION...] | x86-64 [PROGRAM...]" >&2
  exit 2
  ;;
esac
