#!/bin/sh
# The whole way on real input: a text through one Gated DeltaNet-2 layer, the layer's tensors through the rule, forward and
# backward, and every result compared with float64. Ends with the table of errors and times; fails if anything fails.
#
#   sh tools/demo.sh [BUILD_DIR [TEXT]]
#
# BUILD_DIR holds the programs (default: build); what is written goes to BUILD_DIR/demo. TEXT is any file (default: the
# documentation of this repository). TOKENS, SEED in the environment: length and random seed (default: 4096, 1).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
tokens=${TOKENS:-4096}
seed=${SEED:-1}
out=$build/demo

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf 'demo: %s\n' "$*" >&2
  exit 1
}

for program in gdn2 gdn2-layer; do
  [ -x "$build/$program" ] || fail "$build/$program is not there; build the project first (make build)"
done
mkdir -p "$out"

text=${2:-}
if [ -z "$text" ]; then
  # A fixed order; the sources stand last, for when the documentation is shorter than the tokens asked for.
  text=$out/text.txt
  (
    cd "$root"
    LC_ALL=C
    export LC_ALL
    for file in README.md CONTRIBUTING.md CHANGELOG.md docs/*.md src/README.md include/*.h ref/*.[ch] lm/*.[ch]; do
      if [ -f "$file" ]; then cat "$file"; fi
    done
  ) >"$text"
fi

tensors=$out/tensors.safetensors
results=$out/results.safetensors

say "$text -> one Gated DeltaNet-2 layer -> $tensors"
"$build/gdn2-layer" --tokens "$tokens" --seed "$seed" --heads 6 --head-dim 128 --out "$tensors" -- "$text"

say "gdn2 run: outputs, final state and gradients -> $results"
"$build/gdn2" run --in "$tensors" --backward --out "$results"

say "gdn2 check: the same in float64, and what the rule took"
"$build/gdn2" check --in "$tensors" --backward
