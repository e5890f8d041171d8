"""What `gdn2 bench --op decode` really asks of the library: a library before it writes down the calls and passes them on."""

import json
import os
import subprocess

import pytest
from conftest import SOURCE

WRITER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include "gdn2.h"

gdn2_status gdn2_step(const gdn2_step_args *a) {
  gdn2_status (*next)(const gdn2_step_args *) = (gdn2_status(*)(const gdn2_step_args *))dlsym(RTLD_NEXT, "gdn2_step");
  FILE *file = fopen(getenv("STEPS"), "a");
  const int64_t *f = a->from.stride, *t = a->to.stride;
  if (!file) return GDN2_ERR_MEMORY;
  fprintf(file, "{\"from\": %" PRIuPTR ", \"to\": %" PRIuPTR ", \"strides\": [[%lld, %lld, %lld, %lld], [%lld, %lld, %lld, %lld]]}\n",
          (uintptr_t)a->from.data, (uintptr_t)a->to.data, (long long)f[0], (long long)f[1], (long long)f[2], (long long)f[3],
          (long long)t[0], (long long)t[1], (long long)t[2], (long long)t[3]);
  fclose(file);
  return next(a);
}
"""


@pytest.fixture(scope="module")
def writer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("writer")
    source, library = folder / "writer.c", folder / "writer.so"
    source.write_text(WRITER)
    command = [os.environ.get("GDN2_CC", "cc"), "-shared", "-fPIC", f"-I{SOURCE / 'include'}", source, "-o", library, "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def steps(gdn2, writer, tmp_path):
    """The calls of gdn2_step that a bench of decode makes."""

    def run(*arguments):
        file = tmp_path / "steps"
        file.unlink(missing_ok=True)
        sizes = ["--B", 2, "--H", 3, "--K", 16, "--V", 24, "--threads", 1, "--min-time", 0, "--repeats", 1]
        environment = os.environ | {"LD_PRELOAD": str(writer), "STEPS": str(file)}
        result = gdn2("bench", "--op", "decode", *sizes, *arguments, env=environment)
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in file.read_text().splitlines()]

    return run


BY_ROWS = [3 * 16 * 24, 16 * 24, 1, 16]


@pytest.mark.parametrize(("layout", "strides"), [("kv", [0] * 4), ("vk", BY_ROWS)])
def test_layout(steps, layout, strides):
    """Strides of V x K; four zeros are K x V."""
    calls = steps("--layout", layout)
    assert calls and all(call["strides"] == [strides, strides] and call["from"] == call["to"] for call in calls)


@pytest.mark.parametrize(("dtype", "size"), [("f32", 4), ("bf16", 2)])
def test_layers_take_turns(steps, dtype, size):
    """Each on states of its own, one behind the other, over and over."""
    calls = steps("--layers", 3, "--dtype", dtype)
    places = [call["from"] - calls[0]["from"] for call in calls]
    one = 2 * 3 * 16 * 24 * size
    assert len(calls) >= 6 and len(calls) % 3 == 0
    assert places == [one * (i % 3) for i in range(len(calls))]
    assert all(call["from"] == call["to"] for call in calls)
