"""gdn2 bench: that its numbers belong together and its files are whole. How large they are is not tested: machines are shared."""

import csv
import io
import json
import math
import os
import re
import subprocess
import xml.etree.ElementTree as xml

import pytest

pytestmark = pytest.mark.program

FAST = ["--min-time", 0, "--repeats", 1]
SMALL = ["--T", 24, "--H", 2, "--K", 16, *FAST]
WORK = {"forward": 6, "backward": 16, "train": 22, "decode": 6, "seed_forward": 6, "seed_backward": 16, "seed_train": 22}
# Bound by memory: their work is bytes.
MEMORY = ("conv", "conv_backward", "norm", "norm_backward")
WORK |= dict.fromkeys(MEMORY, 0)
TENSORS = dict(zip(MEMORY, (2, 3, 3, 5), strict=True))
BYTES = {"f32": 4, "bf16": 2, "f16": 2}
TEXTS = ("op", "rule", "dtype", "isa", "layout")


def done(result):
    assert result.returncode == 0, result.stderr
    return result.stdout


def results(gdn2, *arguments):
    return json.loads(done(gdn2("bench", "--json", *arguments)))


def listed(gdn2, *arguments):
    """The cases that would be measured, as dictionaries of words."""
    head, *rows = done(gdn2("bench", "--list", *arguments)).splitlines()
    return [dict(zip(head.split(), row.split(), strict=True)) for row in rows]


def assert_consistent(r):
    assert r["ms"] > 0 and r["peak_gflops"] > 0 and r["samples"] >= 1
    assert r["tok_heads_per_s"] == pytest.approx(r["layers"] * r["B"] * r["T"] * r["HV"] / (1e-3 * r["ms"]), rel=1e-4)
    assert r["gflops_useful"] == pytest.approx(1e-9 * WORK[r["op"]] * r["K"] * r["V"] * r["tok_heads_per_s"], rel=1e-4)
    assert r["fraction"] == pytest.approx(r["gflops_useful"] / (r["peak_gflops"] * r["threads"]), rel=1e-4)
    if r["op"] in MEMORY:
        moved = TENSORS[r["op"]] * BYTES[r["dtype"]] * r["B"] * r["T"] * r["HV"] * r["V"]
        assert r["bandwidth_gbs"] == pytest.approx(1e-9 * moved / (1e-3 * r["ms"]), rel=1e-4) and r["bandwidth_fraction"] > 0
    elif r["op"] == "decode":
        states = r["layers"] * r["B"] * r["HV"] * r["K"] * r["V"] * BYTES[r["dtype"]]
        assert r["bandwidth_gbs"] == pytest.approx(2e-9 * states / (1e-3 * r["ms"]), rel=1e-4) and r["bandwidth_fraction"] > 0
    else:
        assert not r["bandwidth_gbs"] and not r["bandwidth_fraction"]


@pytest.mark.parametrize("op", WORK)
def test_numbers_belong_together(gdn2, op):
    (r,) = results(gdn2, "--op", op, "--B", 2, "--V", 8, "--threads", 1, *SMALL)
    assert_consistent(r)
    assert {name: r[name] for name in ("op", "rule", "dtype", "B", "T", "H", "HV", "K", "V", "threads")} == dict(
        op=op, rule="gdn2", dtype="f32", B=2, T=24, H=2, HV=2, K=16, V=8, threads=1
    )


def test_a_planted_inconsistency_is_seen(gdn2):
    (r,) = results(gdn2, *SMALL)
    for name in ("ms", "tok_heads_per_s", "gflops_useful", "fraction"):
        with pytest.raises(AssertionError):
            assert_consistent(r | {name: 1.001 * r[name]})


def test_every_combination_once(gdn2):
    rules, ops, lengths = ("gdn2", "kda", "gdn", "deltanet", "gla"), ("forward", "train"), (3, 24)
    found = results(gdn2, "--op", ",".join(ops), "--rule", ",".join(rules), "--T", "3,24,3", "--H", 1, "--K", 16, *FAST)
    for r in found:
        assert_consistent(r)
    wanted = {(op, rule, T) for op in ops for rule in rules for T in lengths}
    assert {(r["op"], r["rule"], r["T"]) for r in found} == wanted and len(found) == len(wanted)


def test_narrow_types_and_grouped_heads(gdn2):
    found = results(gdn2, "--dtype", "f32,bf16,f16,f64", "--HV", "2,4", *SMALL)
    assert {(r["dtype"], r["HV"]) for r in found} == {(d, n) for d in ("f32", "bf16", "f16", "f64") for n in (2, 4)}
    for r in found:
        assert_consistent(r)


def test_layer_parts_have_shapes_of_their_own(gdn2):
    cases = listed(gdn2, "--op", "forward,norm,conv", "--dtype", "bf16")
    assert [(c["op"], c["T"], c["H"]) for c in cases] == [("forward", "4096", "6"), ("norm", "8192", "32"), ("conv", "8192", "32")]
    for r in results(gdn2, "--op", ",".join(MEMORY), "--dtype", "f32,bf16,f16", *SMALL):
        assert_consistent(r)


def test_the_instruction_set_is_the_one_asked_for(gdn2):
    available = [isa for isa in ("generic", "avx2", "avx512", "neon") if gdn2("info", "--isa", isa).returncode == 0]
    assert "generic" in available
    assert [r["isa"] for r in results(gdn2, "--isa", ",".join(available), *SMALL)] == available
    (r,) = results(gdn2, *SMALL)
    assert r["isa"] == re.search(r"^isa +(\w+)", done(gdn2("info")), re.MULTILINE)[1]


def test_decode(gdn2):
    """Whole batches of one token unless told otherwise; every type and rule; a planted inconsistency is seen."""
    sizes = ["--B", 3, "--H", 2, "--HV", 4, "--K", 16, "--V", 24, *FAST]
    found = results(gdn2, "--op", "decode", "--dtype", "f32,bf16,f16", "--rule", "gdn2,kda,gdn,deltanet,gla", "--T", "1,5", *sizes)
    assert len(found) == 30
    for r in found:
        assert_consistent(r)
    with pytest.raises(AssertionError):
        assert_consistent(found[0] | {"bandwidth_gbs": 1.001 * found[0]["bandwidth_gbs"]})
    (case,) = listed(gdn2, "--op", "decode")
    assert (case["B"], case["T"], case["HV"], case["K"], case["V"]) == ("64", "1", "32", "128", "128")
    assert [(c["op"], c["T"]) for c in listed(gdn2, "--op", "forward,decode")] == [("forward", "4096"), ("decode", "1")]
    assert {c["T"] for c in listed(gdn2, "--op", "forward,decode", "--T", "7")} == {"7"}


def test_decode_of_layers_and_layouts(gdn2):
    """A run is a call for every layer; other ops have one, and K x V."""
    options = ["--op", "decode,forward", "--B", 1, "--layers", 3, "--layout", "vk"]
    found = results(gdn2, *options, "--dtype", "f32,bf16", *SMALL)
    assert [(r["op"], r["layers"], r["layout"]) for r in found] == [("decode", 3, "vk")] * 2 + [("forward", 1, "kv")] * 2
    for r in found:
        assert_consistent(r)


def test_at_least_so_many_samples(gdn2):
    (r,) = results(gdn2, "--T", 3, "--H", 1, "--repeats", 7, "--min-time", 0)
    assert r["samples"] == 7
    (r,) = results(gdn2, "--T", 3, "--H", 1, "--repeats", 1, "--min-time", 0.3)
    assert r["samples"] > 1


def test_three_forms_of_one_result(gdn2):
    rows = list(csv.DictReader(io.StringIO(done(gdn2("bench", "--csv", "--rule", "kda,gla", *SMALL)))))
    objects = results(gdn2, "--rule", "kda,gla", *SMALL)
    assert [list(row) for row in rows] == [list(r) for r in objects]
    for row in rows:
        assert_consistent({name: value if name in TEXTS else float(value or 0) for name, value in row.items()})
    table = done(gdn2("bench", "--rule", "kda,gla", *SMALL)).splitlines()
    assert table[-2].split()[:2] == ["forward", "kda"] and table[-1].split()[:2] == ["forward", "gla"]
    assert table[-3].split()[0] == "op" and len(table[-3].split()) == len(table[-1].split())


EXACT = ["scores", "project", "solve", "output", "update"]
BACK = ["scores", "project", "solve", "update", "adjoint", "back_project", "gates", "values", "state_adjoint", "chain"]
SEED = ["seed_A", "seed_B", "seed_C", "seed_D"]
SEED_BACK = ["seed_B2", "seed_B1", "seed_B3", "seed_B4", "seed_B5"]
STAGES = {
    "forward": EXACT,
    "backward": BACK,
    "train": EXACT + BACK[4:],
    "seed_forward": SEED,
    "seed_backward": SEED_BACK,
    "seed_train": SEED + SEED_BACK,
}


@pytest.mark.parametrize("op", STAGES)
def test_stages(gdn2, op):
    options = ["--op", op, "--T", 256, "--H", 2, "--K", 16, "--threads", 1, "--min-time", 0, "--repeats", 1, "--stages"]
    (r,) = results(gdn2, *options)
    assert list(r["stages_ms"]) == STAGES[op] and all(ms > 0 for ms in r["stages_ms"].values())
    lines = done(gdn2("bench", *options)).splitlines()
    names = [line.split()[0] for line in lines[-len(STAGES[op]) :]]
    assert names == STAGES[op]
    shares = [float(line.split()[2]) for line in lines[-len(names) :]]
    assert sum(shares) == pytest.approx(100, abs=1)


def test_quick_set(gdn2):
    cases = listed(gdn2)
    assert cases == listed(gdn2, "--set", "quick")
    of = lambda **wanted: [c for c in cases if wanted.items() <= c.items()]
    headline = dict(rule="gdn2", dtype="f32", B="1", T="4096", H="6", K="128", V="128", threads="1")
    assert len(of(op="forward", **headline)) >= 1 and len(of(op="train", **headline)) == 1
    assert of(rule="kda") and of(rule="gdn") and of(K="64", V="64") and of(H="1", threads="1") and of(dtype="bf16")
    assert {c["T"] for c in of(B="8", H="8")} == {"16", "256"}
    if os.cpu_count() > 1 and len({c["threads"] for c in cases}) > 1:
        assert of(op="forward", **headline | {"threads": "2"}) and of(H="1", threads="2")


def test_seed_set_has_the_shapes_of_the_seed(gdn2):
    cases = listed(gdn2, "--set", "seed")
    shapes = {(c["op"], c["B"], c["T"], c["H"], c["K"], c["V"]) for c in cases}
    ops = ("forward", "train", "seed_forward", "seed_train")
    lengths = ("1024", "2048", "4096")
    assert shapes == {(op, B, T, "6", "128", "128") for op in ops for B in "1248" for T in lengths}


def test_full_set_has_everything(gdn2):
    cases = listed(gdn2, "--set", "full")
    assert {c["rule"] for c in cases} == {"gdn2", "kda", "gdn", "deltanet", "gla"}
    assert {c["op"] for c in cases} == {"forward", "backward", "train", "decode", *MEMORY}
    assert {c["dtype"] for c in cases} == {"f32", "bf16", "f16"}
    assert len({c["T"] for c in cases}) > 5 and any(c["K"] != c["V"] for c in cases) and any(c["HV"] != c["H"] for c in cases)
    assert len({tuple(c.items()) for c in cases}) == len(cases)


def test_threads_and_isa_of_a_set_can_be_replaced(gdn2):
    cases = listed(gdn2, "--set", "quick", "--threads", 1, "--isa", "generic")
    assert {(c["threads"], c["isa"]) for c in cases} == {("1", "generic")}
    assert len({tuple(c.items()) for c in cases}) == len(cases)


SVG = "{http://www.w3.org/2000/svg}"


def test_plot(gdn2, tmp_path):
    plot = tmp_path / "plot.svg"
    found = results(gdn2, "--op", "forward,train", "--T", "8,16,64", "--H", 1, "--K", 16, "--threads", "1,2", *FAST, "--plot", plot)
    threads = {r["threads"] for r in found}
    root = xml.parse(plot).getroot()
    words = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert root.tag == f"{SVG}svg" and "thousand token-heads / s" in words
    assert any("length T" in word for word in words) and {"8", "16", "64"} <= set(words)
    lines = [line.get("points").split() for line in root.iter(f"{SVG}polyline")]
    # Against length: a line for each op and number of threads. Against threads: one for each op.
    assert sorted(map(len, lines)) == sorted([3] * 2 * len(threads) + [2] * 2 * (len(threads) > 1))
    assert len(list(root.iter(f"{SVG}circle"))) == sum(map(len, lines))
    # A point's height above the axis belongs to the number in its title: the same scale for all points of a panel.
    level = [line for line in root.iter(f"{SVG}line") if line.get("y1") == line.get("y2") and line.get("stroke") == "#333333"]
    axis = max(float(line.get("y1")) for line in level)
    points = [(axis - float(c.get("cy")), float(c[0].text.split()[0])) for c in next(root.iter(f"{SVG}g")).iter(f"{SVG}circle")]
    tallest, largest = max(points)
    assert largest == max(value for _, value in points) > 0
    for height, value in points:
        assert height == pytest.approx(tallest * value / largest, abs=0.2)
    left, right = float(lines[0][0].split(",")[0]), float(lines[0][-1].split(",")[0])
    middle = float(lines[0][1].split(",")[0])
    assert (middle - left) / (right - left) == pytest.approx(math.log2(16 / 8) / math.log2(64 / 8), abs=0.01)


def test_a_plot_that_cannot_be_written_leaves_nothing(gdn2, tmp_path):
    result = gdn2("bench", "--T", "8,16", "--H", 1, *FAST, "--plot", tmp_path / "missing" / "plot.svg")
    assert result.returncode == 2 and "missing" in result.stderr and not result.stdout
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "unknown_op": (["--op", "trian"], "train"),
    "unknown_rule": (["--rule", "gdn2,kdaa"], "kda"),
    "unknown_isa": (["--isa", "sse9", "--T", "8"], "sse9"),
    "unknown_dtype": (["--dtype", "int8"], "int8"),
    "zero_tokens": (["--T", "0"], "--T '0'"),
    "hole_in_a_list": (["--T", "8,,16"], "--T ''"),
    "not_a_number": (["--K", "16x"], "16x"),
    "wide": (["--K", "257"], "256"),
    "many_values": (["--T", ",".join(map(str, range(1, 40)))], "32"),
    "set_and_shape": (["--set", "quick", "--T", "16"], "--T"),
    "two_forms": (["--json", "--csv"], "--csv"),
    "stages_in_columns": (["--csv", "--stages", "--T", "8"], "--stages"),
    "list_as_json": (["--list", "--json"], "--list is a table"),
    "no_set": (["--set", "none"], "must be one of: quick, full, seed"),
    "nothing_to_plot": (["--T", "16", "--plot", "x.svg"], "--plot"),
    "seed_has_one_rule": (["--op", "seed_forward", "--rule", "kda"], "kda"),
    "seed_has_one_type": (["--op", "seed_forward", "--dtype", "bf16"], "float32"),
    "decode_in_float64": (["--op", "decode", "--dtype", "f64"], "--op decode has the types f32, bf16 and f16 only"),
    "norm_in_float64": (["--op", "norm_backward", "--dtype", "f64"], "--op norm_backward has the types"),
    "heads_do_not_divide": (["--H", "2", "--HV", "3"], "HV 3"),
    "layers_without_decode": (["--op", "forward", "--layers", "2"], "--layers is for --op decode"),
    "layout_without_decode": (["--layout", "vk", "--T", "8"], "--layout is for --op decode"),
    "unknown_layout": (["--op", "decode", "--layout", "kk"], "--layout kk: did you mean kv?"),
    "no_repeats": (["--repeats", "0"], "--repeats"),
    "negative_time": (["--min-time", "-1"], "--min-time"),
    "set_beyond_the_machine": (["--set", "quick", "--threads", "4000"], "--threads"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use(gdn2, tmp_path, case):
    arguments, said = WRONG[case]
    result = gdn2("bench", *arguments, cwd=tmp_path)
    assert result.returncode == 2 and said in result.stderr and not result.stdout
    assert list(tmp_path.iterdir()) == []


def test_more_than_the_machine_has(gdn2):
    for large in (["--B", 1 << 20, "--T", 1 << 24], ["--op", "decode", "--B", 1024, "--layers", 4096]):
        result = gdn2("bench", *large, *FAST)
        assert result.returncode == 1 and "GiB" in result.stderr and not result.stdout


def test_progress_on_request_only(gdn2):
    assert gdn2("bench", *SMALL).stderr == ""
    assert "bench" in gdn2("bench", *SMALL, "--progress", "on").stderr


def test_output_that_does_not_arrive_is_a_failure(program):
    with open("/dev/full", "w") as full:
        result = subprocess.run([program, "bench", *map(str, SMALL)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1 and "cannot be written" in result.stderr
