"""Makes a PyTorch that was installed without its CUDA packages importable, for tests on the CPU.

    pip install --no-deps -r tests/python/requirements-torch.txt
    python tools/torch_cpu.py

The wheels of PyTorch on PyPI for x86-64 Linux are linked with CUDA libraries of several gigabytes, which the loader wants to
see even where there is no GPU. On a CPU none of their functions is needed but those of the small CUDA runtime. So this writes
libraries of the missing names beside PyTorch's own, in which every function that PyTorch asks for answers "no device". Needs
gcc and readelf (binutils). A PyTorch that can be imported is left alone.
"""

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

NVIDIA = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+")
FUNCTION = re.compile(r"(cu|nv|nccl)\w+")
NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE


def importable():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def readelf(file, *options):
    return subprocess.run(["readelf", "--wide", *options, file], capture_output=True, text=True, check=True).stdout


def wanted(folder):
    """{library: {version of symbols, or "": functions}} of what PyTorch's libraries ask for and its folder does not have."""
    there = {file.name for file in (*folder.glob("*.so*"), *folder.parents[1].glob("nvidia/*/lib/*.so*"))}
    found, homes, loose = {}, {}, set()
    for file in folder.glob("*.so*"):
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", readelf(file, "-d")):
            if NVIDIA.fullmatch(name) and name not in there:
                found.setdefault(name, {})
        for name, entries in re.findall(r"File: (\S+) .*\n((?:.*Name: .*\n?)*)", readelf(file, "-V")):
            if NVIDIA.fullmatch(name):
                homes |= dict.fromkeys(re.findall(r"Name: (\S+)", entries), name)
        for name, version in re.findall(r" UND (\w+)(?:@(\S+))?", readelf(file, "--dyn-syms")):
            if homes.get(version) in found:
                found[homes[version]].setdefault(version, set()).add(name)
            elif not version and FUNCTION.fullmatch(name):
                loose.add(name)
    if found:
        next(iter(found.values())).setdefault("", set()).update(loose)
    return found


def write(library, versions):
    """A shared library of functions that return NO_DEVICE, under the versions of symbols that others name."""
    functions = sorted(set().union(*versions.values()))
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "stub.c"), Path(folder, "stub.map")
        source.write_text("".join(f"int {name}(void);\nint {name}(void) {{ return {NO_DEVICE}; }}\n" for name in functions))
        named = sorted(version for version in versions if version)
        script.write_text(
            "".join(f"{version} {{ {''.join(f'{name}; ' for name in sorted(versions[version]))}}};\n" for version in named)
        )
        command = ["gcc", "-shared", "-nostdlib", "-fno-builtin", source, f"-Wl,-soname,{library.name}"]
        subprocess.run([*command, *([f"-Wl,--version-script={script}"] if named else []), "-o", library], check=True)


def main():
    if importable():
        return
    spec = importlib.util.find_spec("torch")
    if spec is None:
        sys.exit("tools/torch_cpu.py: PyTorch is not installed")
    folder = Path(spec.origin).parent / "lib"
    for name, versions in wanted(folder).items():
        write(folder / name, versions)
    subprocess.run([sys.executable, "-c", "import torch"], check=True)


if __name__ == "__main__":
    main()
