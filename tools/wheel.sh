#!/bin/sh
# tools/wheel.sh DIR: builds the wheel into DIR, installs it in an environment of its own and tries it there.
set -eu
dir=${1:?usage: tools/wheel.sh DIR}
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel" "$root"
"$work/venv/bin/python" -m pip install --quiet "$work"/wheel/gdn2-*.whl
cd "$work"
env -u GDN2_LIBRARY -u PYTHONPATH "$work/venv/bin/python" "$root/tools/try_wheel.py"
cd - >/dev/null
mkdir -p "$dir"
cp "$work"/wheel/gdn2-*.whl "$dir"
ls -l "$dir"/gdn2-*.whl
