"""gdn2-layer against a NumPy float64 restatement of the layer, from the weights it writes; and its errors."""

import os
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

T, H, K, D = 211, 3, 20, 52
TEXT = "Ümläute, «quotes»\tand\0bytes: the quick brown fox, the lazy dog.\r\n".encode() * 5 + bytes(range(256))
LAYER = "model.layers.0.attn."


@pytest.fixture(scope="module")
def layer(program):
    """layer("--heads", 3, ...): runs gdn2-layer and returns what it printed and its exit code."""
    path = os.environ.get("GDN2_LAYER", program.parent / "gdn2-layer")

    def run(*arguments):
        return subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, timeout=300)

    return run


@pytest.fixture(scope="module")
def written(layer, tmp_path_factory):
    """The tensors and the weights of one run, and the options it was run with."""
    folder = tmp_path_factory.mktemp("layer")
    (folder / "text").write_bytes(TEXT)
    options = ["--tokens", T, "--heads", H, "--head-dim", K, "--d-model", D, "--seed", 5]
    done = layer(folder / "text", *options, "--out", folder / "t.safetensors", "--weights-out", folder / "w.safetensors")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return load_file(folder / "t.safetensors"), load_file(folder / "w.safetensors"), folder, options


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def branch(n, weights, letter):
    """silu(conv(n W^T)), by NumPy's own convolution, channel by channel."""
    y = n @ weights[f"{LAYER}{letter}_proj.weight"].T
    taps = weights[f"{LAYER}{letter}_conv1d.weight"]
    y = np.stack([np.convolve(y[:, c], taps[c, 0, ::-1])[: len(n)] for c in range(y.shape[1])], axis=1)
    return y * sigmoid(y)


def restate(text, weights):
    """q k v g b w [1, T, H, K] in float64."""
    weights = {name: value.astype(np.float64) for name, value in weights.items()}
    x = weights["model.embeddings.weight"][np.frombuffer(text, np.uint8)]
    n = x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-6) * weights["model.layers.0.attn_norm.weight"]
    heads = {letter: branch(n, weights, letter).reshape(1, len(text), H, K) for letter in "qkv"}
    for letter in "qk":
        heads[letter] /= np.sqrt(np.sum(heads[letter] ** 2, axis=-1, keepdims=True) + 1e-6)
    f = n @ weights[LAYER + "f_proj.0.weight"].T @ weights[LAYER + "f_proj.1.weight"].T + weights[LAYER + "dt_bias"]
    heads["g"] = -np.exp(weights[LAYER + "A_log"])[:, None] * np.logaddexp(0, f).reshape(1, len(text), H, K)
    for letter in "bw":
        heads[letter] = sigmoid(n @ weights[f"{LAYER}{letter}_proj.weight"].T).reshape(1, len(text), H, K)
    return heads


def relative(got, want):
    assert got.shape == want.shape
    assert np.linalg.norm(want) > 1e-3 * np.sqrt(want.size)
    return np.linalg.norm(got - want) / np.linalg.norm(want)


def test_tensors_are_the_layer_of_the_weights(written):
    tensors, weights, _, _ = written
    want = restate(TEXT[:T], weights)
    errors = {name: relative(tensors[name], want[name]) for name in "qkvgbw"}
    assert max(errors.values()) < 1e-6, errors


def test_a_wrong_layer_is_seen(written):
    """The bound above is far below what one wrong byte or one wrong weight does."""
    tensors, weights, _, _ = written
    wrong_byte = restate(TEXT[:100] + b"#" + TEXT[101:T], weights)
    assert all(relative(tensors[name], wrong_byte[name]) > 1e-3 for name in "qkvgbw")
    bent = dict(weights)
    bent[LAYER + "dt_bias"] = np.roll(weights[LAYER + "dt_bias"], K)
    assert relative(tensors["g"], restate(TEXT[:T], bent)["g"]) > 1e-2


def test_shapes_and_names(written):
    tensors, weights, _, _ = written
    shapes = {name: (1, T, H, K) for name in ["q", "k", "v", "g", "b", "w", "do"]} | {"dh_final": (1, H, K, K)}
    assert {name: value.shape for name, value in tensors.items()} == shapes
    assert all(value.dtype == np.float32 for value in [*tensors.values(), *weights.values()])
    N = H * K
    assert {name.removeprefix(LAYER): value.shape for name, value in weights.items()} == {
        "model.embeddings.weight": (256, D), "model.layers.0.attn_norm.weight": (D,),
        "q_proj.weight": (N, D), "k_proj.weight": (N, D), "v_proj.weight": (N, D),
        "q_conv1d.weight": (N, 1, 4), "k_conv1d.weight": (N, 1, 4), "v_conv1d.weight": (N, 1, 4),
        "f_proj.0.weight": (K, D), "f_proj.1.weight": (N, K), "b_proj.weight": (N, D), "w_proj.weight": (N, D),
        "A_log": (H,), "dt_bias": (N,), "g_proj.0.weight": (K, D), "g_proj.1.weight": (N, K), "g_proj.1.bias": (N,),
        "o_norm.weight": (K,), "o_proj.weight": (D, N), "lm_head.weight": (256, D), "model.norm.weight": (D,),
        "model.layers.0.mlp_norm.weight": (D,), "model.layers.0.mlp.gate_proj.weight": (1, D),
        "model.layers.0.mlp.up_proj.weight": (1, D), "model.layers.0.mlp.down_proj.weight": (D, 1),
    }  # fmt: skip


def splitmix(seed, stream, count):
    """The bits of a stream, as lm/random.h defines them."""
    mask = 2**64 - 1

    def mix(z):
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    start = mix(mix(seed) + stream & mask)
    return [mix(start + i * 0x9E3779B97F4A7C15 & mask) for i in range(1, count + 1)]


def normal(seed, stream, count):
    fields = np.array(splitmix(seed, stream, 3 * count), np.uint64).view(np.uint16).reshape(count, 12)
    return ((fields.astype(np.int64).sum(axis=1) - 6 * 65535) / 65536).astype(np.float32)


def test_numbers_are_those_of_the_documented_generator(written):
    tensors, weights, _, _ = written
    np.testing.assert_array_equal(tensors["do"].ravel(), normal(5, 1000, T * H * K))
    np.testing.assert_array_equal(tensors["dh_final"].ravel(), normal(5, 1001, H * K * K))
    np.testing.assert_array_equal(weights[LAYER + "w_proj.weight"].ravel(), np.float32(0.02) * normal(5, 11, H * K * D))
    uniform = (np.array(splitmix(5, 12, H)) // 2**12 + 0.5) / 2**52
    np.testing.assert_allclose(np.exp(weights[LAYER + "A_log"]), 1 + 15 * uniform, rtol=1e-6)


def test_gradients_are_like_a_normal_distribution(written):
    do = written[0]["do"]
    assert abs(do.mean()) < 4 / np.sqrt(do.size) and abs(do.std() - 1) < 0.03 and 2.5 < np.abs(do).max() <= 6


def test_the_same_seed_gives_the_same_file(layer, written):
    _, _, folder, options = written
    assert layer(folder / "text", *options, "--out", folder / "again.safetensors").returncode == 0
    assert (folder / "again.safetensors").read_bytes() == (folder / "t.safetensors").read_bytes()
    assert layer(folder / "text", *options, "--seed", 6, "--out", folder / "other.safetensors").returncode == 0
    assert (folder / "other.safetensors").read_bytes() != (folder / "t.safetensors").read_bytes()


def test_texts_are_joined_in_order(layer, written):
    _, _, folder, options = written
    (folder / "one").write_bytes(TEXT[:150])
    (folder / "two").write_bytes(TEXT[150:])
    assert layer(folder / "one", folder / "two", *options, "--out", folder / "joined.safetensors").returncode == 0
    assert (folder / "joined.safetensors").read_bytes() == (folder / "t.safetensors").read_bytes()


def test_a_short_text_is_used_whole_and_said(layer, tmp_path):
    (tmp_path / "text").write_bytes(b"abc")
    done = layer(tmp_path / "text", "--heads", 1, "--head-dim", 4, "--out", tmp_path / "t.safetensors")
    assert done.returncode == 0
    assert "3 bytes" in done.stderr and "4096" in done.stderr
    assert load_file(tmp_path / "t.safetensors")["q"].shape == (1, 3, 1, 4)


@pytest.mark.program
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "a text"),
        (["TEXT"], "--out"),
        (["MISSING", "--out", "OUT"], "missing: the text cannot be opened"),
        (["EMPTY", "--out", "OUT"], "empty: the text is empty"),
        (["FOLDER", "--out", "OUT"], "directory"),
        (["TEXT", "--out", "FOLDER/none/t.safetensors"], "none/t.safetensors"),
        (["TEXT", "--out", "OUT", "--weights-out", "FOLDER/none/w.safetensors"], "none/w.safetensors"),
        (["TEXT", "--out", "OUT", "--tokens", "0"], "tokens"),
        (["TEXT", "--out", "OUT", "--tokens", "-1"], "--tokens -1"),
        (["TEXT", "--out", "OUT", "--tokens", "4k"], "--tokens 4k"),
        (["TEXT", "--out", "OUT", "--tokens", "99999999999999999999"], "--tokens 9999"),
        (["TEXT", "--out", "OUT", "--head-dim", "257"], "head size"),
        (["TEXT", "--out", "OUT", "--heads", "0"], "heads"),
        (["TEXT", "--out", "OUT", "--heads", str(2**62)], "heads"),
        (["TEXT", "--out", "OUT", "--d-model", "0"], "width"),
        (["TEXT", "--out", "OUT", "--seed", "one"], "--seed one"),
        (["TEXT", "--out", "OUT", "--sead", "1"], "sead"),
    ],
)
def test_wrong_use_is_a_sentence(layer, tmp_path, arguments, sentence):
    (tmp_path / "text").write_bytes(TEXT)
    (tmp_path / "empty").write_bytes(b"")
    names = {"TEXT": "text", "MISSING": "missing", "EMPTY": "empty", "OUT": "out.safetensors", "FOLDER": "."}
    words = [str(tmp_path / names[a]) if a in names else a.replace("FOLDER", str(tmp_path)) for a in arguments]
    done = layer(*words)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "text"]


@pytest.mark.program
def test_help_names_every_option(layer):
    done = layer("--help")
    assert done.returncode == 0
    for option in ["--out", "--tokens", "--heads", "--head-dim", "--d-model", "--seed", "--weights-out"]:
        assert option in done.stdout
