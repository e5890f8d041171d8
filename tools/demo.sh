#!/bin/sh
# The whole way on real input: a text through one Gated DeltaNet-2 layer, the layer's tensors through the rule, forward and
# backward, and every result compared with float64: a table of errors and times. Then a language model learns the text and writes
# some of its own. Fails if anything fails.
#
#   sh tools/demo.sh [BUILD_DIR [TEXT]]
#
# BUILD_DIR holds the programs (default: build); what is written goes to BUILD_DIR/demo. TEXT is any file (default: the
# documentation of this repository). In the environment TOKENS, SEED, STEPS: tokens of the layer, random seed, steps of training
# (default: 4096, 1, 2500).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
tokens=${TOKENS:-4096}
seed=${SEED:-1}
steps=${STEPS:-2500}
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

# A window of training and one of what is held out have to fit.
sample=256
if [ "$(wc -c <"$text")" -lt $((12 * sample)) ]; then
  say "the text is too short to learn from: no training"
  exit 0
fi

model=$out/model
rm -rf "$model"
say "gdn2 train: the same text, byte by byte -> $model"
"$build/gdn2" train --out "$model" --steps "$steps" --seed "$seed" --length "$sample" -- "$text"

say "gdn2 generate: what the model writes"
"$build/gdn2" generate "$model" --prompt "The " --tokens 600 --seed "$seed"
printf '\n\nThe loss: %s\n' "$model/loss.svg"
