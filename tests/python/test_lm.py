"""gdn2 train and gdn2 generate: against a restatement of the model in NumPy and PyTorch, and what a run leaves behind."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from lm_model import Model, load, window_of
from safetensors.numpy import load_file

pytestmark = pytest.mark.program

TEXT = b"".join(b"%d times %d is %d.\n" % (i, j, i * j) for i in range(12, 40) for j in range(3, 14))
RULES = ["gdn2", "kda", "gdn", "deltanet"]
SMALL = ["--layers", 2, "--d-model", 36, "--head-dim", 12, "--mlp", 40, "--batch", 3, "--length", 37, "--threads", 1]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    return tmp_path / "text"


@pytest.fixture
def train(gdn2, text):
    """train(folder, option...): a small run on the text, which must succeed; what it printed."""

    def run(folder, *options, small=SMALL):
        done = gdn2("train", text, "--out", folder, *small, *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def rows(folder):
    with open(folder / "log.csv") as file:
        return list(csv.DictReader(file))


def losses(folder):
    """What a run computed, as it was printed: the times are left out."""
    return [(row["step"], row["loss"], row["validation_loss"], row["gradient_norm"]) for row in rows(folder)]


def relative(got, want):
    assert got.shape == want.shape
    assert np.linalg.norm(want) > 1e-3 * np.sqrt(want.size)
    return np.linalg.norm(got - want) / np.linalg.norm(want)


# ---- The model ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gate", ["silu", "sigmoid"])
def test_logits_are_the_model_of_the_checkpoint(train, gdn2, tmp_path, rule, gate):
    more = ["--tied"] if gate == "sigmoid" else []
    train(tmp_path / "m", "--rule", rule, "--output-gate", gate, "--steps", 15, *more)
    prompt = "17 times 4 is 68.\n18 times"
    done = gdn2("generate", tmp_path / "m", "--prompt", prompt, "--tokens", 0, "--logits", tmp_path / "z.safetensors")
    assert done.returncode == 0, done.stderr
    assert done.stdout == prompt
    config, weights, _ = load(tmp_path / "m")
    assert (config["rule"], config["output_gate"], config["tie_word_embeddings"]) == (rule, gate, bool(more))
    got, want = load_file(tmp_path / "z.safetensors")["logits"], Model(config, weights).logits(list(prompt.encode()))
    assert relative(got, want) < 2e-6
    weights["model.layers.1.attn.o_norm.weight"] = weights["model.layers.1.attn.o_norm.weight"] * 1.01
    assert relative(got, Model(config, weights).logits(list(prompt.encode()))) > 1e-5


def test_losses_are_those_of_the_samples(train, tmp_path):
    """A step that learns nothing: the losses are those of the initial weights, which the checkpoint holds."""
    printed = train(tmp_path / "m", "--steps", 1, "--learning-rate", 0, "--seed", 7, "--evaluate-samples", 2, "--json")
    config, weights, _ = load(tmp_path / "m")
    model = Model(config, weights)
    want = np.mean([model.loss(*window_of(TEXT, 7, n, 37, 0.1)) for n in range(3)])
    (row,) = rows(tmp_path / "m")
    assert float(row["loss"]) == pytest.approx(want, rel=1e-6)
    held_out = len(TEXT) - int(len(TEXT) * 0.1)
    windows = [TEXT[held_out + n * 37 : held_out + n * 37 + 38] for n in range(2)]
    want = np.mean([model.loss(list(w[:-1]), list(w[1:])) for w in windows])
    assert float(row["validation_loss"]) == pytest.approx(want, rel=1e-6)
    report = json.loads(printed)
    assert report["validation_loss"] == pytest.approx(want, rel=1e-6)
    assert report["validation_bits"] == pytest.approx(want / math.log(2), rel=1e-6)
    assert report["parameters"] == sum(x.size for x in weights.values())


@pytest.mark.parametrize("rule", RULES)
def test_gradients_are_those_of_autograd(train, tmp_path, rule):
    """After one step that neither clips nor learns, the optimiser's mean is a tenth of the gradient."""
    torch = pytest.importorskip("torch")
    train(tmp_path / "m", "--rule", rule, "--steps", 1, "--learning-rate", 0, "--clip", 0, "--seed", 3, "--accumulate", 2)
    config, weights, tensors = load(tmp_path / "m", lambda x: torch.tensor(x, dtype=torch.float64, requires_grad=True))
    model = Model(config, weights, torch)
    sum(model.loss(*window_of(TEXT, 3, n, 37, 0.1)) for n in range(6)).div(6).backward()
    errors = {}
    for name, weight in weights.items():
        got, want = 10.0 * tensors["adamw.mean." + name], weight.grad.numpy()
        errors[name] = np.linalg.norm(got - want) / np.linalg.norm(want)
        assert np.linalg.norm(want) > 1e-7, name
    assert max(errors.values()) < 1e-4, errors


def test_it_learns_and_generates_what_it_learned(gdn2, tmp_path):
    (tmp_path / "text").write_bytes(b"abcdefgh, " * 400)
    options = ["--layers", 1, "--d-model", 32, "--head-dim", 16, "--batch", 4, "--length", 48, "--steps", 60, "--threads", 1]
    done = gdn2("train", tmp_path / "text", "--out", tmp_path / "m", *options, "--learning-rate", 0.01, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["validation_bits"] < 0.5
    done = gdn2("generate", tmp_path / "m", "--prompt", "abcdefgh, abcd", "--tokens", 40, "--temperature", 0)
    assert done.stdout == "abcdefgh, abcd" + "efgh, abcdefgh, abcdefgh, abcdefgh, abcd"


# ---- A run --------------------------------------------------------------------------------------------------------------------


def test_the_log_the_plot_and_the_lines(train, tmp_path):
    printed = train(tmp_path / "m", "--steps", 12, "--evaluate-every", 5, "--warmup", 4, "--learning-rate", 0.004)
    table = rows(tmp_path / "m")
    assert [int(row["step"]) for row in table] == list(range(1, 13))
    assert [int(row["step"]) for row in table if row["validation_loss"]] == [5, 10, 12]
    rates = [float(row["learning_rate"]) for row in table]
    assert rates[3] == max(rates) == pytest.approx(0.004) and rates[-1] == pytest.approx(0.0004)
    assert all(float(row["loss"]) > 0 and float(row["gradient_norm"]) > 0 and float(row["seconds"]) > 0 for row in table)
    assert float(table[-1]["loss"]) < float(table[0]["loss"]) < math.log(256) * 1.1
    assert [int(n) for n in re.findall(r"^step +(\d+) ", printed, re.MULTILINE)] == [5, 10, 12]
    assert re.search(r"\d+ tokens/s, 1 threads, [\d.]+ useful GFLOP/s", printed)
    svg = ElementTree.parse(tmp_path / "m" / "loss.svg").getroot()
    assert svg.tag.endswith("svg")
    kinds = [element.tag.split("}")[1] for element in svg.iter()]
    assert kinds.count("circle") == 3 and kinds.count("polyline") == 2
    points = next(e for e in svg.iter() if e.tag.endswith("polyline")).get("points").split()
    places = [tuple(map(float, p.split(","))) for p in points]
    assert len(places) == 12 and all(0 <= x <= 640 and 0 <= y <= 400 for x, y in places)
    assert places[0][1] < places[-1][1], "the loss fell: its line goes down, to larger y"


def test_the_progress_line(gdn2, text, tmp_path):
    done = gdn2("train", text, "--out", tmp_path / "m", *SMALL, "--steps", 3, "--progress", "on", "--json")
    lines = re.split("[\r\n]", done.stderr.replace("\033[K", ""))
    pattern = r"step (\d)/3  loss [\d.]+  [\d.]+ bits/byte  \d+ tokens/s  \d+ s left"
    assert [m[1] for m in (re.fullmatch(pattern, line) for line in lines) if m][-1] == "3"
    assert json.loads(done.stdout)["step"] == 3


def test_bits_do_not_depend_on_threads(train, tmp_path):
    for threads in (1, 2, 3):
        train(tmp_path / f"m{threads}", "--steps", 4, "--length", 64, small=SMALL[:-4] + ["--threads", threads])
    assert losses(tmp_path / "m1") == losses(tmp_path / "m2") == losses(tmp_path / "m3")
    one, two = ((tmp_path / m / "checkpoint.safetensors").read_bytes() for m in ("m1", "m3"))
    assert one == two


def test_accumulation_is_a_larger_batch(train, tmp_path):
    small = [*SMALL[:8], "--length", 37, "--threads", 1]
    train(tmp_path / "a", "--steps", 3, "--batch", 6, small=small)
    train(tmp_path / "b", "--steps", 3, "--batch", 2, "--accumulate", 3, small=small)
    a, b = (np.array([float(row["loss"]) for row in rows(tmp_path / m)]) for m in "ab")
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_resuming_changes_no_bit(train, gdn2, program, text, tmp_path):
    train(tmp_path / "whole", "--steps", 20, "--evaluate-every", 4)
    kill_after(program, text, tmp_path / "killed", 6, "--steps", 20, "--evaluate-every", 4, "--save-every", 5)
    done = gdn2("train", text, "--out", tmp_path / "killed", "--resume", "--evaluate-every", 4, "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    whole, killed = ((tmp_path / m / "checkpoint.safetensors").read_bytes() for m in ("whole", "killed"))
    assert whole == killed


def kill_after(program, text, folder, steps, *options, number=signal.SIGKILL):
    """Starts a run and sends it a signal once its log has some steps. Its exit code, and what it said."""
    command = [program, "train", text, "--out", folder, *SMALL, *options]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for _ in range(6000):
        if (folder / "log.csv").exists() and (folder / "log.csv").read_text().count("\n") > steps:
            break
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def test_a_kill_loses_at_most_the_work_since_the_last_checkpoint(gdn2, program, text, tmp_path):
    code, _ = kill_after(program, text, tmp_path / "m", 7, "--steps", 100000, "--save-every", 3)
    assert code == -signal.SIGKILL
    step = load_file(tmp_path / "m" / "checkpoint.safetensors")["training.step"][0]
    done = len(rows(tmp_path / "m"))
    assert step >= 6 and done - step <= 3
    assert gdn2("generate", tmp_path / "m", "--tokens", 0).returncode == 0


def test_interrupt_saves_and_stops(program, text, tmp_path):
    code, said = kill_after(program, text, tmp_path / "m", 4, "--steps", 100000, number=signal.SIGINT)
    assert code == 0
    steps = len(rows(tmp_path / "m"))
    assert f"stopped after step {steps}" in said
    assert load_file(tmp_path / "m" / "checkpoint.safetensors")["training.step"][0] == steps
    assert (tmp_path / "m" / "loss.svg").exists()
    assert not list(tmp_path.glob("m/.gdn2-*"))


def test_a_longer_run_may_follow(train, gdn2, text, tmp_path):
    train(tmp_path / "m", "--steps", 4)
    done = gdn2("train", text, "--out", tmp_path / "m", "--resume", "--steps", 6, "--threads", 1)
    assert done.returncode == 0, done.stderr
    assert [int(row["step"]) for row in rows(tmp_path / "m")] == [1, 2, 3, 4, 5, 6]


def test_recall_is_counted_for_each_number_of_pairs(gdn2, tmp_path):
    options = ["--layers", 1, "--d-model", 32, "--head-dim", 16, "--batch", 16, "--length", 32, "--vocabulary", 32, "--pairs", 8]
    more = ["--steps", 30, "--threads", 1, "--json", "--evaluate-samples", 50]
    done = gdn2("train", "--task", "mqar", *options, *more, "--out", tmp_path / "m")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report["accuracy"]) == {"8", "4"} and all(0 <= a <= 1 for a in report["accuracy"].values())
    # 16 possible values: what is known without looking at the keys is worth 4 bits, and it is learned in a few steps.
    assert report["validation_bits"] < 4.3
    refused = gdn2("generate", tmp_path / "m")
    assert refused.returncode == 2 and "mqar" in refused.stderr


# ---- Generation ---------------------------------------------------------------------------------------------------------------


def test_generation_streams_and_its_memory_is_constant(train, gdn2, program, tmp_path):
    train(tmp_path / "m", "--steps", 2)
    first = subprocess.Popen([program, "generate", tmp_path / "m", "--tokens", "100000000"], stdout=subprocess.PIPE)
    assert len(first.stdout.read(5)) == 5, "bytes come while it works"
    first.kill()
    first.communicate()
    memory = []
    # OpenMP allocates and frees for every loop; a sanitizer would keep what is freed.
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=0"}
    for tokens in (100, 4000):
        command = [program, "generate", tmp_path / "m", "--tokens", str(tokens), "--threads", "1", "--speed"]
        done = subprocess.run(command, capture_output=True, timeout=300, env=environment)
        assert done.returncode == 0 and len(done.stdout) == tokens
        assert len(re.search(r"tenth:((?: \d+){10});", done.stderr.decode())[1].split()) == 10
        memory.append(int(re.search(r"memory (\d+) KiB", done.stderr.decode())[1]))
    assert memory[1] < memory[0] + 512


def test_a_seed_fixes_the_text(train, gdn2, program, tmp_path):
    train(tmp_path / "m", "--steps", 2)

    def write(*options):
        command = [program, "generate", tmp_path / "m", "--tokens", "60", *options]
        return subprocess.run(list(map(str, command)), capture_output=True, timeout=300).stdout

    assert write("--seed", 3) == write("--seed", 3) != write("--seed", 4)
    assert write("--top-k", 1) == write("--temperature", 0)
    assert write("--prompt", "x" * 300)[:300] == b"x" * 300
    assert write("--prompt", "") == write()


# ---- Wrong use ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train"], "--out"),
        (["train", "--out", "OUT"], "a text"),
        (["train", "TEXT"], "--out"),
        (["train", "MISSING", "--out", "OUT"], "missing: cannot be opened"),
        (["train", "FOLDER", "--out", "OUT"], "is not a regular file"),
        (["train", "EMPTY", "--out", "OUT"], "empty: the text is empty"),
        (["train", "TEXT", "--out", "TEXT"], "text: is not a folder"),
        (["train", "TEXT", "--out", "FOLDER/none/m"], "none/m: cannot be made"),
        (["train", "TEXT", "--out", "OUT", "--length", "100000"], "--length"),
        (["train", "TEXT", "--out", "OUT", "--rule", "gdn3"], "did you mean gdn2"),
        (["train", "TEXT", "--out", "OUT", "--output-gate", "tanh"], "--output-gate tanh"),
        (["train", "TEXT", "--out", "OUT", "--stepps", "3"], "did you mean --steps"),
        (["train", "TEXT", "--out", "OUT", "--steps", "0"], "--steps '0'"),
        (["train", "TEXT", "--out", "OUT", "--head-dim", "300"], "--head-dim '300'"),
        (["train", "TEXT", "--out", "OUT", "--conv", "5"], "--conv '5'"),
        (["train", "TEXT", "--out", "OUT", "--learning-rate", "fast"], "--learning-rate 'fast'"),
        (["train", "TEXT", "--out", "OUT", "--resume"], "config.json"),
        (["train", "TEXT", "--task", "mqar", "--out", "OUT"], "takes no files"),
        (["train", "--task", "mqar", "--pairs", "70", "--out", "OUT"], "four times the pairs"),
        (["train", "--task", "mqar", "--vocabulary", "40", "--pairs", "32", "--out", "OUT"], "half of the vocabulary"),
        (["generate"], "folder"),
        (["generate", "MISSING"], "config.json"),
        (["generate", "MISSING", "MISSING"], "one folder"),
        (["generate", "MISSING", "--tokens", "-1"], "--tokens '-1'"),
        (["generate", "MISSING", "--top-p", "2"], "--top-p 2"),
    ],
)
def test_wrong_use_is_a_sentence(gdn2, tmp_path, arguments, sentence):
    (tmp_path / "text").write_bytes(TEXT)
    (tmp_path / "empty").write_bytes(b"")
    names = {"TEXT": "text", "MISSING": "missing", "EMPTY": "empty", "OUT": "out", "FOLDER": "."}
    words = [str(tmp_path / names[a]) if a in names else a.replace("FOLDER", str(tmp_path)) for a in arguments]
    done = gdn2(*words)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr and done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "text"]


def test_a_run_is_not_overwritten_and_not_bent(train, gdn2, text, tmp_path):
    train(tmp_path / "m", "--steps", 2)
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()}
    (tmp_path / "other").write_bytes(TEXT + b"!")
    for arguments, sentence in (
        ([text], "holds a run already; --resume"),
        ([text, "--resume", "--batch", 4], "--batch: with --resume"),
        ([tmp_path / "other", "--resume"], "another text"),
    ):
        done = gdn2("train", *arguments, "--out", tmp_path / "m")
        assert done.returncode == 2 and sentence in done.stderr, done.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "m").iterdir()} == before


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("config.json", lambda data: data[:-20], "not valid JSON"),
        ("config.json", lambda data: data.replace(b'"num_heads":\t3', b'"num_heads":\t-3'), "num_heads"),
        ("config.json", lambda data: data.replace(b'"gdn2"', b'"other"'), "rule"),
        ("config.json", lambda data: data.replace(b'"head_dim":\t12', b'"head_dim":\t13'), "shape"),
        ("config.json", lambda data: data.replace(b'"vocab_size":\t256', b'"vocab_size":\t100'), "vocab_size must be 256"),
        ("config.json", lambda data: data.replace(b'"validation":\t0.1', b'"validation":\t1e300'), "validation"),
        ("checkpoint.safetensors", lambda data: data[:-4], "checkpoint.safetensors"),
        ("checkpoint.safetensors", lambda data: data.replace(b"o_norm", b"o_mron"), "o_norm.weight: is missing"),
        ("checkpoint.safetensors", lambda data: b"", "checkpoint.safetensors"),
    ],
)
def test_a_broken_folder_is_named(train, gdn2, text, tmp_path, name, change, sentence):
    train(tmp_path / "m", "--steps", 1)
    data = (tmp_path / "m" / name).read_bytes()
    assert change(data) != data
    (tmp_path / "m" / name).write_bytes(change(data))
    for done in (gdn2("generate", tmp_path / "m", "--tokens", 0), gdn2("train", text, "--out", tmp_path / "m", "--resume")):
        assert done.returncode == 2
        assert sentence in done.stderr, done.stderr


def test_a_loss_that_blows_up_is_said(gdn2, text, tmp_path):
    done = gdn2("train", text, "--out", tmp_path / "m", *SMALL, "--steps", 50, "--learning-rate", 1000, "--clip", 0, "--warmup", 0)
    assert done.returncode == 1 and "not finite" in done.stderr
