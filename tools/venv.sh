#!/bin/sh
# tools/venv.sh DIR: a virtual environment in DIR with tests/python/requirements.txt. A stamp with the requirements it was made
# from saves doing it again: nothing is said and no network touched while they are the same. pip's own configuration and
# environment decide where packages come from.
set -eu
dir=${1:?usage: tools/venv.sh DIR}
requirements=$(dirname "$0")/../tests/python/requirements.txt
stamp=$dir/requirements.stamp

if cmp -s "$requirements" "$stamp" && "$dir/bin/python" -c '' 2>/dev/null; then
  exit 0
fi
for python in python3 python3.13 python3.12 python3.11 none; do
  "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
if [ "$python" = none ]; then
  echo "tools/venv.sh: no Python from 3.11 on with the venv module was found" >&2
  exit 1
fi
echo "making $dir with $("$python" --version) and tests/python/requirements.txt"
rm -rf "$dir"
"$python" -m venv "$dir"
"$dir/bin/python" -m pip install --quiet -r "$requirements"
cp "$requirements" "$stamp"
