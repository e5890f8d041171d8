"""The gdn2 program: what it computes, against the token loop of token_loop.py, and how its verbs answer."""

import re
import signal
import subprocess
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from check_table import rows
from safetensors.numpy import load_file, save_file
from token_loop import RULES, assert_close, forward, gradients, relative_error, sample

pytestmark = pytest.mark.program


def options_of(folder, x, leave_out=()):
    """The tensors as .npy files and the options that name them."""
    options = []
    for name, value in x.items():
        if name in leave_out:
            continue
        np.save(folder / f"{name}.npy", value)
        options += ["--" + name.replace("_", "-"), folder / f"{name}.npy"]
    return options


def done(result):
    assert result.returncode == 0, result.stderr
    return result


def test_the_adjoint_of_the_oracle_is_that_of_its_forward():
    x = {name: value.astype(np.float64) for name, value in sample(T=6, K=3, V=4, B=1, H=2).items()}
    exact = gradients(x)
    loss = lambda y: sum((forward(y)[0][a] * x[b]).sum() for a, b in (("o", "do"), ("h_final", "dh_final")))
    r = np.random.default_rng(1)
    for name in ("q", "k", "v", "g", "b", "w", "h0"):
        direction, step = r.normal(size=x[name].shape), 1e-6
        ends = [loss(x | {name: x[name] + sign * step * direction}) for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * step) == pytest.approx((exact["d" + name] * direction).sum(), rel=1e-7)


def test_the_comparison_rejects_planted_errors():
    x = sample()
    right = forward(x)[0] | gradients(x)
    assert_close(right, right)
    for wrong in (
        forward(x, scale=0.4472)[0],  # the scale, in the fourth digit
        forward(x | {"b": np.zeros_like(x["b"])})[0],  # nothing is erased
        forward(x | {"g": np.zeros_like(x["g"])})[0],  # nothing decays
        forward(x | {"h0": np.zeros_like(x["h0"])})[0],
    ):
        with pytest.raises(AssertionError):
            assert_close(right | wrong, right)
    for name in ("dq", "dk", "dv", "dg", "db", "dw", "dh0"):
        with pytest.raises(AssertionError):
            assert_close(right | {name: right[name] * (1 + 3e-6)}, right)
    with pytest.raises(AssertionError):
        assert_close({"o": np.zeros(3)}, {"o": np.zeros(3)})


@pytest.mark.parametrize("rule", RULES)
def test_arrays_to_safetensors(gdn2, tmp_path, rule):
    x = sample(rule)
    out = tmp_path / "out.safetensors"
    done(gdn2("run", "--rule", rule, *options_of(tmp_path, x), "--backward", "--out", out))
    wanted = forward(x, rule)[0] | gradients(x, rule)
    y = load_file(out)
    assert set(y) == set(wanted)
    assert_close(y, wanted)


@pytest.mark.parametrize("rule", RULES)
def test_safetensors_to_arrays(gdn2, tmp_path, rule):
    x = sample(rule, seed=1)
    save_file(x, tmp_path / "in.safetensors", metadata={"made by": "a test"})
    done(gdn2("run", f"--rule={rule}", f"--in={tmp_path / 'in.safetensors'}", "--backward", f"--out={tmp_path / 'new'}/"))
    wanted = forward(x, rule)[0] | gradients(x, rule)
    y = {path.stem: np.load(path) for path in (tmp_path / "new").iterdir()}
    assert set(y) == set(wanted)
    assert all(value.dtype == np.float32 for value in y.values())
    assert_close(y, wanted)


def run(gdn2, folder, x, *more):
    save_file(x, folder / "in.safetensors")
    done(gdn2("run", "--in", folder / "in.safetensors", "--out", folder / "out.safetensors", *more))
    return load_file(folder / "out.safetensors")


def test_forward_alone(gdn2, tmp_path):
    x = sample()
    del x["do"], x["dh_final"], x["h0"]
    y = run(gdn2, tmp_path, x)
    assert set(y) == {"o", "h_final"}
    assert_close(y, forward(x)[0])


@pytest.mark.parametrize("left_out", ["do", "dh_final", "h0"])
def test_optional_inputs(gdn2, tmp_path, left_out):
    x = sample()
    del x[left_out]
    y, wanted = run(gdn2, tmp_path, x, "--backward"), forward(x)[0] | gradients(x)
    if left_out == "do":
        assert not y["dq"].any() and not wanted.pop("dq").any()
    if left_out == "h0":
        assert not y["dg"][:, 0].any() and not y["db"][:, 0].any()
    assert_close(y, wanted)


def test_scale(gdn2, tmp_path):
    x = sample()
    assert_close(run(gdn2, tmp_path, x, "--backward", "--scale", "-1.5"), forward(x, scale=-1.5)[0] | gradients(x, scale=-1.5))


def test_an_array_replaces_a_key(gdn2, tmp_path):
    x, other = sample(), sample(seed=5)
    np.save(tmp_path / "v.npy", other["v"])
    assert_close(run(gdn2, tmp_path, x, "--v", tmp_path / "v.npy"), forward(x | {"v": other["v"]})[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_element_types_of_inputs(gdn2, tmp_path, dtype):
    x = {name: value.astype(dtype) for name, value in sample().items()}
    rounded = {name: value.astype(np.float32) for name, value in x.items()}
    wanted = forward(rounded)[0] | gradients(rounded)
    y = run(gdn2, tmp_path, x, "--backward")
    assert all(value.dtype == (np.float64 if dtype == np.float64 else np.float32) for value in y.values())
    assert_close(y, wanted)
    if dtype == ml_dtypes.bfloat16:
        return
    out = tmp_path / "npy.safetensors"
    done(gdn2("run", *options_of(tmp_path, x), "--backward", "--out", out))
    assert_close(load_file(out), wanted)


def wide_sample(rule="gdn2", **sizes):
    """Numbers that float32 does not have."""
    r = np.random.default_rng(3)
    return {name: value * (1 + 1e-8 * r.normal(size=value.shape)) for name, value in sample(rule, **sizes).items()}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("progress", ["on", "off"])
def test_float64_inputs_are_computed_in_float64(gdn2, tmp_path, rule, progress):
    x = wide_sample(rule)
    y = run(gdn2, tmp_path, x, "--rule", rule, "--backward", "--progress", progress)
    wanted = forward(x, rule)[0] | gradients(x, rule)
    assert set(y) == set(wanted)
    for name, value in wanted.items():
        assert y[name].dtype == np.float64 and np.linalg.norm(value) > 1e-2
        assert relative_error(y[name], value) < 1e-14, name
    single = run(gdn2, tmp_path, {name: value.astype(np.float32) for name, value in x.items()}, "--rule", rule)
    assert single["o"].dtype == np.float32 and relative_error(single["o"], wanted["o"]) > 1e-9
    assert ", float64\n" in done(check(gdn2, tmp_path, x, "--rule", rule)).stdout
    for name, (_, error, _, bound, verdict) in rows(check(gdn2, tmp_path, x, "--rule", rule, "--backward")).items():
        assert error < bound == 1e-13 and verdict == "yes", name


def test_one_float32_input_makes_it_float32(gdn2, tmp_path):
    x = wide_sample()
    x["w"] = x["w"].astype(np.float32)
    y = run(gdn2, tmp_path, x)
    assert y["o"].dtype == np.float32
    np.testing.assert_array_equal(y["o"], run(gdn2, tmp_path, {k: v.astype(np.float32) for k, v in x.items()})["o"])


@pytest.mark.parametrize(("name", "dtype"), [("f32", np.float32), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_float64_results_are_rounded_once(gdn2, tmp_path, name, dtype):
    x = wide_sample()
    wide = run(gdn2, tmp_path, x, "--backward")
    narrow = run(gdn2, tmp_path, x, "--backward", "--dtype", name)
    for key, value in wide.items():
        wanted = value.astype(dtype)
        assert narrow[key].dtype == dtype
        np.testing.assert_array_equal(narrow[key].view(np.uint8), wanted.view(np.uint8), key)


@pytest.mark.parametrize(("name", "dtype"), [("f64", np.float64), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_element_types_of_outputs(gdn2, tmp_path, name, dtype):
    x = sample()
    single = run(gdn2, tmp_path, x, "--backward")
    other = run(gdn2, tmp_path, x, "--backward", "--dtype", name)
    for key, value in single.items():
        assert other[key].dtype == dtype
        np.testing.assert_array_equal(other[key].view(np.uint8), value.astype(dtype).view(np.uint8), key)


def test_a_result_beyond_the_element_type_is_told(gdn2, tmp_path):
    x = sample()
    x["h0"][0, 0, 0, 0] = 1e9
    x["g"][:] = 0
    x["b"][:] = 0
    save_file(x, tmp_path / "in.safetensors")
    result = done(gdn2("run", "--in", tmp_path / "in.safetensors", "--dtype", "f16", "--out", tmp_path / "o.safetensors"))
    count = int(re.search(r"(\d+) finite elements of the outputs are beyond --dtype", result.stderr)[1])
    assert count == sum(int(np.isinf(value).sum()) for value in load_file(tmp_path / "o.safetensors").values()) > 0


def test_slices_threads_and_files_change_no_bit(gdn2, tmp_path):
    x = sample(B=3, H=5)
    whole = run(gdn2, tmp_path, x, "--backward", "--progress", "off")
    for more in (["--progress", "on", "--threads", "2"], ["--threads", "1"], ["--threads=7", "--progress=on"]):
        other = run(gdn2, tmp_path, x, "--backward", *more)
        assert all(np.array_equal(whole[name].view(np.uint32), other[name].view(np.uint32)) for name in whole)


def test_the_bar_is_drawn_when_asked(gdn2, tmp_path):
    save_file(sample(), tmp_path / "in.safetensors")
    arguments = ("run", "--in", tmp_path / "in.safetensors", "--out", tmp_path / "o.safetensors")
    bar = re.compile(r"\srun +\[#+\.*\] +\d+ %")
    assert not bar.search(done(gdn2(*arguments)).stderr)
    assert bar.search(done(gdn2(*arguments, "--progress", "on")).stderr)


@pytest.mark.parametrize("isa", ["generic", "avx2", "avx512", "neon"])
def test_instruction_sets(gdn2, tmp_path, isa):
    info = gdn2("info", "--isa", isa)
    if info.returncode:
        assert info.returncode == 2 and isa in info.stderr
        pytest.skip(f"no {isa} here")
    assert f"{isa} (forced)" in info.stdout
    x = sample(K=17, V=33)
    assert_close(run(gdn2, tmp_path, x, "--backward", "--isa", isa), forward(x)[0] | gradients(x))


@pytest.mark.parametrize("sizes", [{"T": 0}, {"B": 0}, {"H": 0}, {"T": 1}, {"T": 64, "K": 1, "V": 1}])
def test_edges_of_sizes(gdn2, tmp_path, sizes):
    x = sample(**sizes)
    for more in ((), ("--progress", "on")):
        y, wanted = run(gdn2, tmp_path, x, "--backward", *more), forward(x)[0] | gradients(x)
        assert {name: value.shape for name, value in y.items()} == {name: value.shape for name, value in wanted.items()}
        assert_close(y, {name: value for name, value in wanted.items() if value.size})


# ---- check ------------------------------------------------------------------------------------------------------------------


def check(gdn2, folder, x, *more):
    save_file(x, folder / "in.safetensors")
    return gdn2("check", "--in", folder / "in.safetensors", *more)


@pytest.mark.parametrize("rule", RULES)
def test_check_agrees(gdn2, tmp_path, rule):
    x = sample(rule)
    result = done(check(gdn2, tmp_path, x, "--rule", rule))
    table, wanted = rows(result), forward(x, rule)[0] | gradients(x, rule)
    assert set(table) == set(wanted)
    assert "reference: the float64 oracle" in result.stdout
    for name, (size, error, worst, bound, verdict) in table.items():
        assert size == pytest.approx(np.linalg.norm(wanted[name]), rel=1e-4), name
        assert 0 < error <= bound == (1e-6 if name in ("o", "h_final") else 2e-6)
        assert worst > 0 and verdict == "yes"


def test_check_reports_the_error_that_the_loop_sees(gdn2, tmp_path):
    x = sample(T=300)
    y, wanted = run(gdn2, tmp_path, x, "--backward"), forward(x)[0] | gradients(x)
    for name, (_, error, worst, _, _) in rows(check(gdn2, tmp_path, x)).items():
        assert error == pytest.approx(relative_error(y[name], wanted[name]), rel=0.02), name
        assert worst == pytest.approx(np.abs(y[name] - wanted[name]).max(), rel=0.02), name


def test_check_without_gradients(gdn2, tmp_path):
    x = sample()
    del x["do"], x["dh_final"]
    result = done(check(gdn2, tmp_path, x))
    assert set(rows(result)) == {"o", "h_final"} and "random" not in result.stdout
    result = done(check(gdn2, tmp_path, x, "--backward"))
    assert len(rows(result)) == 9 and "fixed seeds" in result.stdout
    assert rows(check(gdn2, tmp_path, x, "--backward")) == rows(result)


def test_check_fails_on_what_float32_cannot_hold(gdn2, tmp_path):
    """Keys that are too long make the state grow at every token, and the growth magnifies rounding."""
    x = sample(T=150, K=16, V=16)
    x["k"] *= 1.5
    x["g"][:] = 0
    x["b"][:] = 0.95
    result = check(gdn2, tmp_path, x)
    verdicts = {name: row[-1] for name, row in rows(result).items()}
    assert result.returncode == 1 and "above the bound" in verdicts.values()
    assert re.search(r"worst element \[\d+, \d+, \d+, \d+\]: engine \S+, reference \S+", result.stdout)
    assert "tensors above fail" in result.stderr


def test_check_fails_on_nan_and_names_the_element(gdn2, tmp_path):
    x = sample()
    x["q"][1, 20, 2, 3] = np.nan
    result = check(gdn2, tmp_path, x)
    assert result.returncode == 1
    assert rows(result)["o"][-1] == "not finite" and rows(result)["h_final"][-1] == "yes"
    assert "o: worst element [1, 20, 2, 0]: engine nan, reference nan; 7 elements" in result.stdout.replace("-nan", "nan")


def test_check_fails_when_there_is_nothing_to_compare(gdn2, tmp_path):
    x = sample()
    x["v"][:] = 0
    x["h0"][:] = 0
    result = check(gdn2, tmp_path, x)
    assert result.returncode == 1 and rows(result)["o"][-1] == "reference is all zeros"


def test_check_knows_which_zeros_are_right(gdn2, tmp_path):
    x = sample(T=1)
    del x["h0"]
    verdicts = {name: row[-1] for name, row in rows(done(check(gdn2, tmp_path, x))).items()}
    assert {name for name, verdict in verdicts.items() if "exactly zero" in verdict} == {"dg", "db"}
    x = sample(T=0)
    verdicts = {name: row[-1] for name, row in rows(done(check(gdn2, tmp_path, x))).items()}
    assert verdicts["o"] == "empty" and verdicts["h_final"] == verdicts["dh0"] == "yes"


# ---- info, help, files of the system ------------------------------------------------------------------------------------------


def test_info(gdn2):
    result = done(gdn2("info", "--threads", "1"))
    assert re.search(r"^gdn2 (\d+\.\d+\.\d+) \(header \1\)$", result.stdout, re.MULTILINE)
    assert re.search(r"^isa +(generic|avx2|avx512|neon)$", result.stdout, re.MULTILINE)
    assert re.search(r"^threads +1 of \d+ processors$", result.stdout, re.MULTILINE)
    assert "K and V from 1 to 256" in result.stdout


VERBS = ("run", "check", "bench", "train", "generate", "info")


def test_help(gdn2):
    usage = done(gdn2("help")).stdout
    assert usage == gdn2("--help").stdout and all(verb in usage for verb in VERBS)
    for verb in VERBS:
        text = done(gdn2("help", verb)).stdout
        assert text == done(gdn2(verb, "--help")).stdout and "--threads " in text
    assert re.fullmatch(r"gdn2 \d+\.\d+\.\d+\n", done(gdn2("--version")).stdout)


def test_the_manual_has_every_option(gdn2):
    options = {name for verb in VERBS for name in re.findall(r"^  (--[\w-]+)", gdn2("help", verb).stdout, re.MULTILINE)}
    manual = (Path(__file__).parents[2] / "docs" / "gdn2.1").read_text().replace("\\-", "-")
    assert len(options) > 20 and set(re.findall(r"--[A-Za-z][\w-]*", manual)) == options | {"--help", "--name"}


def test_no_verb(gdn2):
    result = gdn2()
    assert result.returncode == 2 and result.stderr.startswith("usage:") and not result.stdout


def test_a_table_that_cannot_be_printed_is_a_failure(program, tmp_path):
    save_file(sample(), tmp_path / "in.safetensors")
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [program, "check", "--in", tmp_path / "in.safetensors"], check=False, stdout=full, stderr=subprocess.PIPE
        )
    assert result.returncode == 1 and b"cannot be written" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_writing_leaves_nothing(program, tmp_path, number):
    save_file(
        {k: v for k, v in sample(B=40, T=1, H=4, K=256, V=256).items() if k not in ("do", "dh_final", "h0")},
        tmp_path / "in.safetensors",
    )
    command = [program, "run", "--in", tmp_path / "in.safetensors", "--dtype", "f64", "--out", tmp_path / "out.safetensors"]
    before = {"in.safetensors"}
    for _ in range(20):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        caught = False
        while process.poll() is None and not caught:
            # The check before the work leaves an empty file for a moment: wait for one with content.
            caught = any(path.name.endswith(".tmp") and size_of(path) for path in tmp_path.iterdir())
        process.send_signal(number)
        code = process.wait()
        names = {path.name for path in tmp_path.iterdir()}
        if code == -number:
            assert caught and names == before
            return
        assert code == 0 and names == before | {"out.safetensors"}  # it was faster than the signal
        (tmp_path / "out.safetensors").unlink()
        time.sleep(0.01)
    pytest.fail("the program was never caught while it wrote")


def size_of(path):
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
