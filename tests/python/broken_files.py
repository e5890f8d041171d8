"""What test_files.py and test_files_safetensors.py share: a place where the program meets a broken file, ways to break one."""

import subprocess

import numpy as np
import pytest
from hypothesis import strategies as st
from safetensors.numpy import load_file, save

SHAPE = (1, 2, 1, 3)
Q = np.arange(1, 7, dtype=np.float32).reshape(SHAPE)
TENSORS = {"q": Q, "k": Q / 9, "v": Q[..., :1].copy(), "beta": np.full(SHAPE[:3], 0.5, np.float32)}


@pytest.fixture(scope="module")
def workshop(program, tmp_path_factory):
    """accepts(kind, content): whether the program takes it; its output is left in out.safetensors of accepts.folder."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "good.safetensors").write_bytes(save(TENSORS))
    arguments = {
        "npy": ["--in", "good.safetensors", "--q", "bad"],
        "safetensors": ["--in", "bad"],
    }
    # At most 1 GiB of memory, but for a sanitizer, which reserves terabytes of addresses.
    limit = "" if b"__asan_init" in program.read_bytes() else "ulimit -v 1048576;"
    limited = ["sh", "-c", limit + 'exec "$@"', "sh", program]

    def accepts(kind, content):
        (folder / "bad").write_bytes(content)
        (folder / "out.safetensors").unlink(missing_ok=True)
        command = [*limited, "run", "--rule", "deltanet", "--threads", "1", *arguments[kind], "--out", "out.safetensors"]
        result = subprocess.run(command, check=False, capture_output=True, cwd=folder, timeout=60)
        names = {path.name for path in folder.iterdir()} - {"out.safetensors"}
        assert names == {"good.safetensors", "bad"}, names
        accepts.sentence = result.stderr.decode("utf-8", "replace")
        assert result.returncode in (0, 2), (result.returncode, accepts.sentence)
        taken = result.returncode == 0
        assert taken == (folder / "out.safetensors").exists()
        if not taken:
            assert "bad" in accepts.sentence and "Sanitizer" not in accepts.sentence
            assert all(c.isprintable() or c == "\n" for c in accepts.sentence), accepts.sentence
        return taken

    accepts.folder = folder
    return accepts


def first_output(q, k, v, beta):
    """o of the first token from a zero state, K^-1/2 (k . q) beta v: it shows how every tensor was read."""
    q, k, v, beta = (np.asarray(t, np.float64)[0, 0, 0] for t in (q, k, v, beta))
    return q.size**-0.5 * (k @ q) * beta * v


def assert_output(accepts, tensors):
    o = load_file(accepts.folder / "out.safetensors")["o"][0, 0, 0]
    wanted = first_output(*(tensors[name] for name in ("q", "k", "v", "beta")))
    if np.all(np.isfinite(wanted)) and np.all(np.abs(wanted) > 1e-30):
        np.testing.assert_allclose(o, wanted, rtol=1e-5)


def mutate(content, changes):
    """Each change: what, where (as a fraction of the file), and a byte."""
    content = bytearray(content)
    for what, where, byte in changes:
        at = int(where * len(content))
        if what == "replace" and content:
            content[min(at, len(content) - 1)] = byte
        elif what == "insert":
            content.insert(at, byte)
        elif what == "delete" and content:
            del content[min(at, len(content) - 1)]
        elif what == "cut":
            del content[at:]
        elif what == "double":
            content[at:at] = content[at : at + 1 + byte % 20]
    return bytes(content)


interesting = st.sampled_from(list(b"0123456789-+.eE,:;(){}[]'\"\\ \n\0\x7f\x80\xc0\xffTFLu<>f"))
change = st.tuples(
    st.sampled_from(["replace", "replace", "replace", "insert", "delete", "double", "cut"]),
    st.floats(0, 0.999),
    st.one_of(interesting, st.integers(0, 255)),
)
changes = st.lists(change, min_size=1, max_size=3)
