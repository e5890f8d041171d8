"""gdn2 run and check with the options of a problem: grouped heads, gates per head and of key heads, raw decays and gates, L2 norm."""

import numpy as np
import options_loop
import pytest
from check_table import rows
from safetensors.numpy import load_file, save_file
from token_loop import assert_close, relative_error

pytestmark = pytest.mark.program

CASES = {
    "grouped": ({}, {}),
    "tiled": ({}, {"head_map": "tiled"}),
    "gates per head": ({"per_head": True}, {}),
    "gates of key heads": ({"key_gates": True}, {"head_map": "tiled"}),
    "softplus": ({"raw": True, "H": 3}, {"decay": "softplus", "erase": "two_sigmoid", "write": "sigmoid"}),
    "bounded": ({"raw": True, "per_head": True, "key_gates": True}, {"decay": "bounded", "lower_bound": -3.0, "erase": "sigmoid"}),
    "varlen": ({"B": 1, "N": 3, "raw": True}, {"varlen": True, "decay": "softplus", "erase": "sigmoid", "write": "sigmoid"}),
    "l2norm": ({}, {"qk_l2norm": True, "scale": 0.7}),
}


def arguments(options):
    names = {"head_map": "map"}
    flags = {"qk_l2norm": ["--qk-l2norm"], "varlen": ["--varlen"]}
    return [
        word
        for name, value in options.items()
        for word in flags.get(name, [f"--{names.get(name, name).replace('_', '-')}={value}"])
    ]


def run(gdn2, folder, x, *more):
    save_file(x, folder / "in.safetensors")
    result = gdn2("run", "--in", folder / "in.safetensors", "--out", folder / "out.safetensors", *more)
    assert result.returncode == 0, result.stderr
    return load_file(folder / "out.safetensors")


def sequences(options):
    """Three of them, one empty, and tokens behind the last."""
    return {"cu_seqlens": np.array([0, 5, 5, 8], np.int64)} if "varlen" in options else {}


@pytest.mark.parametrize("progress", ["on", "off"])
@pytest.mark.parametrize("case", CASES)
def test_outputs(gdn2, tmp_path, case, progress):
    shape, options = CASES[case]
    x = options_loop.sample(**shape) | sequences(options)
    y = run(gdn2, tmp_path, x, *arguments(options), f"--progress={progress}")
    assert_close(y, options_loop.forward(x, options))


@pytest.mark.parametrize("progress", ["on", "off"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_slopes(gdn2, tmp_path, case, progress):
    shape, options = CASES[case]
    r = np.random.default_rng(2)
    x = {name: value.astype(np.float64) for name, value in options_loop.sample(T=9, **shape).items()}
    ends = {"do": r.normal(size=x["v"].shape), "dh_final": r.normal(size=x["h0"].shape)}
    cu = sequences(options)
    y = run(gdn2, tmp_path, x | cu | ends, *arguments(options), "--backward", f"--progress={progress}")
    assert set(y) == {"o", "h_final"} | {"d" + name for name in x}
    for name, value in x.items():
        assert y["d" + name].shape == value.shape
        direction = r.normal(size=value.shape)
        expected = options_loop.slope(x | cu, options, *ends.values(), {name: direction})
        assert abs(expected) > 1e-2, name
        assert (y["d" + name] * direction).sum() == pytest.approx(expected, rel=1e-5), name


def test_one_beta_for_both_raw_gates(gdn2, tmp_path):
    x = options_loop.sample(per_head=True)
    x["beta"] = 2 * x.pop("b") - 1
    del x["w"]
    options = {"erase": "two_sigmoid", "write": "sigmoid"}
    assert_close(run(gdn2, tmp_path, x, "--rule", "gdn", *arguments(options)), options_loop.forward(x, options))


WRONG = {
    "varlen without cu_seqlens": (["--varlen"], "cu_seqlens is missing: --varlen needs it"),
    "cu_seqlens without varlen": (["--cu-seqlens", "cu.npy"], "--cu-seqlens needs --varlen"),
    "varlen of two rows": (["--varlen", "--cu-seqlens", "cu.npy"], "B = 2 must be 1 with --varlen"),
    "float cu_seqlens": (["--varlen", "--cu-seqlens", "A_log.npy"], "cu_seqlens: element type <f4 must be I32 or I64"),
    "A-log without decay": (["--A-log", "A_log.npy"], "--A-log needs --decay softplus or bounded"),
    "decay without A_log": (["--decay", "softplus"], "A_log is missing"),
    "no lower bound": (["--decay", "bounded"], "--decay bounded needs --lower-bound X"),
    "lower bound not below 0": (["--decay", "bounded", "--lower-bound", "0"], "--decay bounded needs --lower-bound X"),
    "lower bound alone": (["--lower-bound", "-1"], "--lower-bound needs --decay bounded"),
    "decay of deltanet": (["--rule", "deltanet", "--decay", "softplus"], "--decay: rule deltanet has no g"),
    "erase of gla": (["--rule", "gla", "--erase", "sigmoid"], "--erase: rule gla has no erase gate"),
    "write of gla": (["--rule", "gla", "--write", "sigmoid"], "--write: rule gla has no write gate"),
    "write two_sigmoid": (["--write", "two_sigmoid"], "--write two_sigmoid: "),
}
WRONG_RUN = {
    "seed": (["--semantics", "seed", "--qk-l2norm"], "--semantics seed does not take --qk-l2norm"),
    "grouped heads in the seed": (["--semantics", "seed"], "--semantics seed has no grouped heads"),
}


@pytest.mark.parametrize("case", WRONG | WRONG_RUN)
def test_wrong_use(gdn2, tmp_path, case):
    more, sentence = (WRONG | WRONG_RUN)[case]
    save_file(options_loop.sample(), tmp_path / "in.safetensors")
    np.save(tmp_path / "A_log.npy", np.zeros(6, np.float32))
    np.save(tmp_path / "cu.npy", np.array([0, 4, 9], np.int32))
    result = gdn2("run", "--in", "in.safetensors", "--out", "out.safetensors", *more, cwd=tmp_path)
    assert result.returncode == 2 and sentence in result.stderr
    assert not (tmp_path / "out.safetensors").exists()
    if case in WRONG:
        result = gdn2("check", "--in", "in.safetensors", *more, cwd=tmp_path)
        assert result.returncode == 2 and sentence in result.stderr and not result.stdout


def test_cu_seqlens_as_npy_and_falling(gdn2, tmp_path):
    options = {"varlen": True}
    x = options_loop.sample(B=1, N=2)
    for cu, fault in (([0, 7, 19], None), ([0, 7, 5], "cu_seqlens"), ([0, 7, 20], "cu_seqlens")):
        np.save(tmp_path / "cu.npy", np.array(cu, np.int32))
        if not fault:
            y = run(gdn2, tmp_path, x, "--varlen", "--cu-seqlens", tmp_path / "cu.npy")
            assert_close(y, options_loop.forward(x | {"cu_seqlens": cu}, options))
            continue
        result = gdn2("run", "--in=in.safetensors", "--out=no.safetensors", "--varlen", "--cu-seqlens=cu.npy", cwd=tmp_path)
        assert result.returncode == 2 and fault in result.stderr and not (tmp_path / "no.safetensors").exists()


def test_heads_that_do_not_fit(gdn2, tmp_path):
    x = options_loop.sample(H=4, HV=6)
    save_file(x, tmp_path / "in.safetensors")
    result = gdn2("run", "--in", "in.safetensors", "--out", "out.safetensors", cwd=tmp_path)
    assert result.returncode == 2 and "HV = 6, must be a multiple of q's, H = 4" in result.stderr


# ---- check ------------------------------------------------------------------------------------------------------------------


def check(gdn2, folder, x, *more):
    save_file(x, folder / "in.safetensors")
    return gdn2("check", "--in", folder / "in.safetensors", *more)


def with_gradients(x):
    r = np.random.default_rng(3)
    ends = {"do": r.normal(size=x["v"].shape), "dh_final": r.normal(size=x["h0"].shape)}
    return x | {name: value.astype(np.float32) for name, value in ends.items()}


def exact(gdn2, folder, x, options, *more):
    """Outputs by the token loop; gradients by the float64 path, which test_gradients_are_slopes holds against the loop."""
    wide = {name: value if name == "cu_seqlens" else value.astype(np.float64) for name, value in x.items()}
    return run(gdn2, folder, wide, *arguments(options), *more, "--backward") | options_loop.forward(x, options)


@pytest.mark.parametrize("case", CASES)
def test_check_reports_the_errors_of_the_engine(gdn2, tmp_path, case):
    shape, options = CASES[case]
    x = with_gradients(options_loop.sample(**shape) | sequences(options))
    y, wanted = run(gdn2, tmp_path, x, *arguments(options), "--backward"), exact(gdn2, tmp_path, x, options)
    for progress in ("on", "off"):
        result = check(gdn2, tmp_path, x, *arguments(options), f"--progress={progress}")
        assert result.returncode == 0 and "reference: the library's float64 path" in result.stdout
        table = rows(result)
        assert set(table) == set(wanted) == set(y)
        for name, (size, error, worst, bound, verdict) in table.items():
            assert size == pytest.approx(np.linalg.norm(wanted[name]), rel=1e-4) and size > 1e-2, name
            assert 0 < error <= bound == (1e-6 if name in ("o", "h_final") else 2e-6) and verdict == "yes", name
            assert error == pytest.approx(relative_error(y[name], wanted[name]), rel=0.02), name
            assert worst == pytest.approx(np.abs(y[name] - wanted[name]).max(), rel=0.02), name


def test_check_of_one_beta_for_both_raw_gates(gdn2, tmp_path):
    x = with_gradients(options_loop.sample(per_head=True))
    x["beta"] = 2 * x.pop("b") - 1
    del x["w"]
    options = {"erase": "two_sigmoid", "write": "sigmoid"}
    result = check(gdn2, tmp_path, x, "--rule", "gdn", *arguments(options))
    wanted = exact(gdn2, tmp_path, x, options, "--rule", "gdn")
    assert result.returncode == 0 and "dbeta" in rows(result)
    for name, (size, error, *_) in rows(result).items():
        assert size == pytest.approx(np.linalg.norm(wanted[name]), rel=1e-4) and size > 1e-2 and error > 0, name


@pytest.mark.parametrize("case", ["grouped", "varlen"])
def test_check_makes_gradients(gdn2, tmp_path, case):
    shape, options = CASES[case]
    x = options_loop.sample(**shape) | sequences(options)
    assert set(rows(check(gdn2, tmp_path, x, *arguments(options)))) == {"o", "h_final"}
    result = check(gdn2, tmp_path, x, *arguments(options), "--backward")
    assert result.returncode == 0 and "fixed seeds" in result.stdout
    assert set(rows(result)) == {"o", "h_final"} | {"d" + name for name in x if name != "cu_seqlens"}


def test_check_rounds_float64_to_float32(gdn2, tmp_path):
    shape, options = CASES["softplus"]
    x = with_gradients(options_loop.sample(**shape))
    wide = {name: value.astype(np.float64) * (1 + 1e-9) for name, value in x.items()}
    result = check(gdn2, tmp_path, wide, *arguments(options))
    assert result.returncode == 0 and "are float64 and are rounded to float32" in result.stderr
    single = check(gdn2, tmp_path, x, *arguments(options))
    assert rows(result) == rows(single) and len(rows(single)) == 11 and "rounded" not in single.stderr


def test_check_fails_where_float32_is_too_coarse(gdn2, tmp_path):
    """Orthonormal keys erase a large initial state: what is left are writes of size 1 and the rounding of what was there."""
    x = with_gradients(options_loop.sample(K=16, T=16))
    x["k"][:] = np.linalg.qr(np.random.default_rng(4).normal(size=(16, 16)))[0][:, None]
    x["h0"] *= 1e4
    x["g"][:] = 0
    x["b"][:] = 1
    result = check(gdn2, tmp_path, x)
    assert result.returncode == 1 and "tensors above fail" in result.stderr
    y, wanted = run(gdn2, tmp_path, x), options_loop.forward(x, {})
    _, error, _, bound, verdict = rows(result)["h_final"]
    assert error > 100 * bound and verdict == "above the bound"
    assert error == pytest.approx(relative_error(y["h_final"], wanted["h_final"]), rel=0.02)


def test_check_names_the_element_of_a_sequence(gdn2, tmp_path):
    shape, options = CASES["varlen"]
    x = options_loop.sample(**shape) | sequences(options)
    x["v"][0, 6, 4, 3] = np.nan
    result = check(gdn2, tmp_path, x, *arguments(options))
    assert result.returncode == 1 and {row[-1] for row in rows(result).values()} == {"not finite"}
    text = result.stdout.replace("-nan", "nan")
    assert "o: worst element [0, 6, 4, 3]: engine nan, reference nan; 2 elements" in text
    assert "h_final: worst element [2, 4, 0, 3]: engine nan, reference nan; 5 elements" in text


@pytest.mark.parametrize(
    ("cu", "zeros"),
    [
        ([0, 1, 1, 2], {"dg", "db", "dA_log", "ddt_bias"}),
        ([0, 0, 0, 0], {"o", "h_final", "dq", "dk", "dv", "dg", "db", "dw", "dA_log", "ddt_bias"}),
    ],
)
def test_check_knows_which_zeros_of_sequences_are_right(gdn2, tmp_path, cu, zeros):
    _, options = CASES["varlen"]
    x = with_gradients(options_loop.sample(B=1, N=3, raw=True)) | {"cu_seqlens": np.array(cu, np.int32)}
    del x["h0"]
    result = check(gdn2, tmp_path, x, *arguments(options))
    assert result.returncode == 0, result.stdout
    assert {name for name, row in rows(result).items() if "exactly zero" in row[-1]} == zeros


def test_check_of_a_falling_cu_seqlens(gdn2, tmp_path):
    x = options_loop.sample(B=1, N=2) | {"cu_seqlens": np.array([0, 7, 5])}
    result = check(gdn2, tmp_path, x, "--varlen")
    assert result.returncode == 2 and "cu_seqlens" in result.stderr and not rows(result)
