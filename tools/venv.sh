#!/bin/sh
# tools/venv.sh DIR: a virtual environment in DIR with tests/python/requirements*.txt. A stamp with the requirements it was made
# from saves doing it again: nothing is said and no network touched while they are the same. pip's own configuration and
# environment decide where packages come from.
#
# PyTorch is for a CPU, without its CUDA packages (tools/torch_cpu.py): half a minute and 1.4 GB. GDN2_TORCH=OFF in the environment
# leaves it and what goes with it out; the tests that need it are then skipped.
set -eu
dir=${1:?usage: tools/venv.sh DIR}
tools=$(dirname "$0")
requirements=$tools/../tests/python/requirements
stamp=$dir/requirements.stamp
wanted=$requirements.txt
[ "${GDN2_TORCH:-ON}" = OFF ] || wanted="$wanted $requirements-torch.txt $requirements-alone.txt"

# shellcheck disable=SC2086 # one word a file
if cat $wanted | cmp -s - "$stamp" && "$dir/bin/python" -c '' 2>/dev/null; then
  exit 0
fi
for python in python3 python3.13 python3.12 python3.11 none; do
  "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
if [ "$python" = none ]; then
  echo "tools/venv.sh: no Python from 3.11 on with the venv module was found" >&2
  exit 1
fi
echo "making $dir with $("$python" --version) and tests/python/requirements*.txt"
rm -rf "$dir"
"$python" -m venv "$dir"
"$dir/bin/python" -m pip install --quiet -r "$requirements.txt"
if [ "${GDN2_TORCH:-ON}" != OFF ]; then
  "$dir/bin/python" -m pip install --quiet -r "$requirements-torch.txt"
  "$dir/bin/python" -m pip install --quiet --no-deps -r "$requirements-alone.txt"
  "$dir/bin/python" "$tools/torch_cpu.py"
fi
# shellcheck disable=SC2086
cat $wanted >"$stamp"
