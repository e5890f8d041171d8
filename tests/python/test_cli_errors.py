"""Wrong use and bad input: exit code 2, a sentence that names what is wrong, and nothing written."""

import os
import re
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file
from token_loop import sample

pytestmark = pytest.mark.program


@pytest.fixture
def folder(tmp_path):
    """q.npy and so on, the same tensors in in.safetensors, some bad files, and nothing else."""
    x = sample(T=4)
    for name, value in (x | {"beta": x["b"][..., 0]}).items():
        np.save(tmp_path / f"{name}.npy", value)
    save_file(x, tmp_path / "in.safetensors")
    q, v = x["q"], x["v"]
    bad = {
        "shape": q[:, :, :, :4].copy(),
        "rank3": q[0],
        "int32": q.astype(np.int32),
        "big_endian": q.astype(">f4"),
        "fortran": np.asfortranarray(q),
        "wide257": np.zeros((2, 4, 3, 257), np.float32),
        "wide0": np.zeros((2, 4, 3, 0), np.float32),
        "huge_value": v.astype(np.float64) * 1e300,
    }
    for name, value in bad.items():
        np.save(tmp_path / f"{name}.npy", value)
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    save_file({name: x[name] for name in "qkvgb"}, tmp_path / "no_w.safetensors")
    save_file(x | {"v": x["v"].astype(np.int64)}, tmp_path / "int64.safetensors")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "directory").mkdir()
    os.link(tmp_path / "in.safetensors", tmp_path / "hard.safetensors")
    os.symlink("in.safetensors", tmp_path / "soft.safetensors")
    os.symlink("/dev/full", tmp_path / "device.safetensors")
    (tmp_path / "same").mkdir()
    os.link(tmp_path / "q.npy", tmp_path / "same" / "o.npy")
    (tmp_path / "folder.safetensors").mkdir()
    os.mkfifo(tmp_path / "pipe.npy")
    return tmp_path


def state_of(folder):
    """Every name below the folder, with the bytes of the regular files."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


RUN = ["run", "--in", "in.safetensors", "--out", "out.safetensors"]
SEED = [*RUN, "--semantics", "seed"]
GATES = ["--v", "v.npy", "--g", "g.npy", "--b", "b.npy", "--w", "w.npy"]

CASES = {
    # shapes: the tensor, its shape, what it must be
    "shape of k": ([*RUN, "--k", "shape.npy"], r"k \(shape.npy\): shape \[2, 4, 3, 4\] must be \[2, 4, 3, 5\] \(B, T"),
    "shape of v": ([*RUN, "--v", "rank3.npy"], r"v \(rank3.npy\): shape \[4, 3, 5\] must be \[B, T, H, V\]"),
    "shape of q": ([*RUN, "--q", "rank3.npy"], r"q \(rank3.npy\): shape \[4, 3, 5\] must be \[B, T, H, K\]"),
    "shape of w": ([*RUN, "--w", "b.npy"], r"w \(b.npy\): shape \[2, 4, 3, 5\] must be \[2, 4, 3, 7\]"),
    "shape of h0": ([*RUN, "--h0", "v.npy"], r"h0 \(v.npy\): shape \[2, 4, 3, 7\] must be \[2, 3, 5, 7\]"),
    "shape of do": ([*RUN, "--backward", "--do", "q.npy"], r"do \(q.npy\): shape .* must be \[2, 4, 3, 7\]"),
    "shape of dh_final": (
        [*RUN, "--backward", "--dh-final", "q.npy"],
        r"dh_final \(q.npy\): shape .* must be \[2, 3, 5, 7\] \(B, T",
    ),
    "shape of g per head": (
        [*RUN, "--rule", "gdn", "--beta", "beta.npy"],
        r"g \(in.safetensors\): shape \[2, 4, 3, 5\] must be \[2, 4, 3\] \(B, T",
    ),
    "shape of beta": ([*RUN, "--rule", "kda", "--beta", "b.npy"], r"beta \(b.npy\): shape \[2, 4, 3, 5\] must be \[2, 4, 3\]"),
    "K too large": (["run", "--q", "wide257.npy", "--k", "wide257.npy", *GATES], "shape|K = 257"),
    "K too large, deltanet": (
        ["run", "--rule", "deltanet", "--q", "wide257.npy", "--k", "wide257.npy", "--v", "v.npy", "--beta", "beta.npy"],
        "K = 257, must be from 1 to 256",
    ),
    "K is 0": (
        ["check", "--rule", "gla", "--q", "wide0.npy", "--k", "wide0.npy", "--g", "wide0.npy", "--v", "v.npy"],
        "K = 0, must be",
    ),
    # files
    "int32": ([*RUN, "--q", "int32.npy"], r"int32.npy: q: element type <i4 must be F32"),
    "big-endian": ([*RUN, "--q", "big_endian.npy"], r"--q: big_endian.npy: byte \d+: descr must be '<f4'"),
    "Fortran order": ([*RUN, "--q", "fortran.npy"], r"--q: fortran.npy: byte \d+: fortran_order is True"),
    "objects": ([*RUN, "--q", "object.npy"], r"--q: object.npy: byte \d+: descr must be"),
    "int64 in safetensors": (["run", "--in", "int64.safetensors", "--out", "o.safetensors"], r"v: element type I64 must be F32"),
    "beyond float32": ([*RUN, "--v", "huge_value.npy"], r"huge_value.npy: element 0 is \S+e\+?\d+, which does not fit float32"),
    "missing file": ([*RUN, "--q", "none.npy"], "--q: none.npy: cannot be opened: No such file"),
    "missing container": (
        ["run", "--in", "none.safetensors", "--out", "o.safetensors"],
        "--in: none.safetensors: cannot be opened",
    ),
    "directory": ([*RUN, "--q", "directory"], "--q: directory: is not a regular file"),
    "pipe": ([*RUN, "--q", "pipe.npy"], "--q: pipe.npy: is not a regular file"),
    "empty file": ([*RUN, "--q", "empty.npy"], "--q: empty.npy: byte 0: the file ends"),
    "npy as container": (["run", "--in", "q.npy", "--out", "o.safetensors"], "--in: q.npy: byte 0: header length"),
    "container as npy": ([*RUN, "--q", "in.safetensors"], r"--q: in.safetensors: byte 0: not a .npy file"),
    # what belongs together
    "no input": (["run", "--out", "o.safetensors"], "q is missing: rule gdn2 needs --q FILE or --in FILE"),
    "no w": (
        ["run", "--in", "no_w.safetensors", "--out", "o.safetensors"],
        "w is missing: .*the key w in no_w.safetensors or --w FILE",
    ),
    "no beta": ([*RUN, "--rule", "kda"], "beta is missing: rule kda needs"),
    "b for kda": ([*RUN, "--rule", "kda", "--beta", "beta.npy", "--b", "b.npy"], "--b: rule kda does not take b"),
    "g for deltanet": ([*RUN, "--rule", "deltanet", "--beta", "beta.npy", "--g", "g.npy"], "--g: rule deltanet does not take g"),
    "beta for gdn2": ([*RUN, "--beta", "beta.npy"], "--beta: rule gdn2 does not take beta"),
    "no gradient": (
        ["run", "--in", "no_w.safetensors", "--w", "w.npy", "--out", "o.safetensors", "--backward"],
        "--backward needs .*--do, --dh-final",
    ),
    "do without backward": ([*RUN, "--do", "do.npy"], "--do needs --backward"),
    "dh-final without backward": ([*RUN, "--dh-final", "dh_final.npy"], "--dh-final needs --backward"),
    "seed option": ([*RUN, "--bt", "64"], "--bt needs --semantics seed"),
    "seed with kda": ([*SEED, "--rule", "kda"], "--semantics seed has the rule gdn2 only, not kda"),
    "bt and bc": ([*SEED, "--bt", "64", "--bc", "48"], "b[tc]"),
    "bc and mb": ([*SEED, "--bt", "64", "--bc", "32", "--mb", "5"], "mb"),
    "wy_eps of 1": ([*SEED, "--wy-eps", "1"], "wy_eps"),
    # values
    "negative threads": ([*RUN, "--threads", "-1"], "--threads '-1': must be a whole number from 0"),
    "threads in words": ([*RUN, "--threads=two"], "--threads 'two': must be a whole number"),
    "too many threads": ([*RUN, "--threads", "99999999999999999999"], "--threads '9+': must be a whole number"),
    "half a thread": ([*RUN, "--threads", "1.5"], "--threads '1.5'"),
    "NaN scale": ([*RUN, "--scale", "nan"], "--scale 'nan': must be a finite number"),
    "infinite scale": ([*RUN, "--scale", "-inf"], "--scale '-inf': must be a finite number"),
    "no number": ([*RUN, "--scale", "1x"], "--scale '1x': must be a finite number"),
    "empty number": ([*RUN, "--scale="], "--scale '': must be a finite number"),
    "negative clip": ([*SEED, "--clip", "-1"], "--clip -1: must be from 0"),
    "large wy-eps": ([*SEED, "--wy-eps", "1.5"], "--wy-eps 1.5: must be from 0 to 1"),
    "bt of 0": ([*SEED, "--bt", "0"], "--bt '0': must be a whole number from 1"),
    "rule": ([*RUN, "--rule", "gnd"], "--rule gnd: did you mean gdn"),
    "isa": ([*RUN, "--isa", "sse2"], "--isa sse2: (did you mean|must be one of)"),
    "semantics": ([*RUN, "--semantics", "approximate"], "--semantics approximate: must be one of: exact, seed$"),
    "dtype": ([*RUN, "--dtype", "int8"], "--dtype int8: must be one of: .*f32"),
    # options
    "unknown option": ([*RUN, "--bakward"], "unknown option --bakward; did you mean --backward?"),
    "unknown option far": ([*RUN, "--colour=red"], "unknown option --colour$"),
    "option of another verb": (["check", "--in", "in.safetensors", "--out", "x"], "unknown option --out"),
    "no value": ([*RUN, "--q"], "--q needs a value: FILE"),
    "value is an option": (["run", "--in", "--backward"], "--in needs a value: FILE"),
    "twice": ([*RUN, "--q", "q.npy", "--q=q.npy"], "--q is given twice"),
    "flag with a value": ([*RUN, "--backward=yes"], "--backward takes no value"),
    "no option": ([*RUN, "q.npy"], "unexpected argument 'q.npy'"),
    "one dash": ([*RUN, "-q", "q.npy"], "unexpected argument '-q'"),
    "empty name": ([*RUN, "--q="], "--q: the name is empty"),
    "unknown verb": (["rum"], "unknown verb 'rum'; did you mean run?"),
    "unknown verb far": (["--q"], "unknown verb '--q'; see gdn2 help"),
    "help for nothing": (["help", "everything"], "unknown verb 'everything'"),
    "help for two": (["help", "run", "check"], "help takes one verb"),
    # the output, refused before anything is computed: the input of these cases would fail later
    "no out": (["run", "--in", "in.safetensors"], "--out is missing"),
    "folder of out": (
        [*RUN[:3], "--v", "huge_value.npy", "--out", "none/out.safetensors"],
        "--out: none/out.safetensors: cannot be written: No such",
    ),
    "file as folder": (
        [*RUN[:3], "--v", "huge_value.npy", "--out", "q.npy/out.safetensors"],
        "--out: q.npy/out.safetensors: cannot be written: Not a dir",
    ),
    "long name": (
        [*RUN[:3], "--v", "huge_value.npy", "--out", "x" * 300 + ".safetensors"],
        "cannot be written: File name too long",
    ),
    "out is a folder": ([*RUN[:3], "--out", "folder.safetensors"], "--out: folder.safetensors: is a directory"),
    "out is a device": ([*RUN[:3], "--out", "device.safetensors"], "--out: device.safetensors: exists and is not a regular file"),
    "new folder in none": (
        [*RUN[:3], "--v", "huge_value.npy", "--out", "none/new/"],
        "--out: none/new/: cannot be made: No such",
    ),
    "no known end": ([*RUN[:3], "--out", "out.npz"], "--out out.npz: must end in .safetensors, or be a directory"),
    "out is the input": ([*RUN[:3], "--out", "in.safetensors"], "--out: in.safetensors is also an input"),
    "out is a hard link": ([*RUN[:3], "--out", "hard.safetensors"], "--out: hard.safetensors is also an input"),
    "out is a soft link": ([*RUN[:3], "--out", "soft.safetensors"], "--out: soft.safetensors is also an input"),
    "out holds an input": ([*RUN[:3], "--q", "q.npy", "--out", "same"], "--out: same/o.npy is also an input"),
    "bf16 arrays": ([*RUN[:3], "--out", "new/", "--dtype", "bf16"], "--dtype bf16 does not exist in .npy"),
}


@pytest.mark.parametrize("name", CASES)
def test_wrong_use(gdn2, folder, name):
    arguments, sentence = CASES[name]
    before = state_of(folder)
    result = gdn2(*arguments, cwd=folder, timeout=20)
    assert result.returncode == 2, (result.returncode, result.stderr)
    lines = [line for line in result.stderr.splitlines() if ": note: " not in line]
    assert len(lines) == 1 and lines[0].startswith("gdn2") and re.search(sentence, lines[0]), result.stderr
    assert not result.stdout and state_of(folder) == before


def test_the_good_neighbours_of_these_cases(gdn2, folder):
    for arguments in (RUN, [*RUN, "--backward"], [*RUN[:3], "--q", "q.npy", "--out", "directory"], ["check", *RUN[1:3]]):
        result = gdn2(*arguments, cwd=folder)
        assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("verb", [RUN, ["check", *RUN[1:3]], ["info"]])
def test_instruction_set_of_the_environment(gdn2, folder, verb):
    result = gdn2(*verb, cwd=folder, env=os.environ | {"GDN2_ISA": "mmx"})
    assert result.returncode == 2 and "mmx" in result.stderr and not (folder / "out.safetensors").exists()


@pytest.fixture
def cramped(program, folder):
    """Runs the program where no file may grow beyond a few hundred bytes: the write fails after the computation."""

    def run(*arguments):
        command = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", program, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder, timeout=60)

    return run


@pytest.mark.parametrize("out", ["out.safetensors", "new/", "directory"])
def test_a_full_disk_leaves_nothing(cramped, folder, out):
    before = state_of(folder)
    result = cramped(*RUN[:3], "--out", out, "--dtype", "f64")
    assert result.returncode == 1 and re.search(r"--out: .*cannot be written: File too large", result.stderr), result.stderr
    assert state_of(folder) == before


def test_an_old_output_survives_a_failure_and_keeps_its_mode(gdn2, cramped, folder):
    out = folder / "out.safetensors"
    out.write_bytes(b"old")
    out.chmod(0o640)
    assert cramped(*RUN, "--dtype", "f64").returncode == 1
    assert out.read_bytes() == b"old"
    assert gdn2(*RUN, cwd=folder).returncode == 0
    assert len(out.read_bytes()) > 1000 and out.stat().st_mode & 0o777 == 0o640


def test_unused_keys_are_told(gdn2, folder):
    save_file(sample(T=4) | {"typo": np.zeros(3, np.float32)}, folder / "more.safetensors")
    result = gdn2("run", "--in", "more.safetensors", "--out", "out.safetensors", cwd=folder)
    assert result.returncode == 0
    assert "note: more.safetensors: key typo is not an input and is not used" in result.stderr
    assert "note: more.safetensors: key do is not used without --backward" in result.stderr
