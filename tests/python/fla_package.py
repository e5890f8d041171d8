"""What flash-linear-attention publishes that runs on a CPU: its naive functions, and the signatures of its kernels.

Both are taken out of its files, because the package itself cannot be imported without Triton.
"""

import ast
import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed (tests/python/requirements-alone.txt)")
pytest.importorskip("einops", reason="einops is not installed (tests/python/requirements-torch.txt)")

# Threads are of no use to tensors as small as these.
torch.set_num_threads(1)
_spec = importlib.util.find_spec("fla")
if _spec is None:
    pytest.skip("fla-core is not installed (tests/python/requirements-alone.txt)", allow_module_level=True)
OPS = Path(_spec.submodule_search_locations[0], "ops")

# File of each function that gdn2.torch has.
KERNELS = {
    "chunk_gdn2": "gdn2/chunk.py",
    "fused_recurrent_gdn2": "gdn2/fused_recurrent.py",
    "chunk_kda": "kda/chunk.py",
    "fused_recurrent_kda": "kda/fused_recurrent.py",
    "chunk_gated_delta_rule": "gated_delta_rule/chunk.py",
    "fused_recurrent_gated_delta_rule": "gated_delta_rule/fused_recurrent.py",
    "chunk_delta_rule": "delta_rule/chunk.py",
    "fused_recurrent_delta_rule": "delta_rule/fused_recurrent.py",
    "chunk_gla": "gla/chunk.py",
    "fused_recurrent_gla": "gla/fused_recurrent.py",
}


def naive(file):
    """A module of naive functions, which needs nothing of the package."""
    spec = importlib.util.spec_from_file_location("fla_" + file.replace("/", "_")[:-3], OPS / file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _definition(file, name):
    tree = ast.parse((OPS / file).read_text())
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def function(file, name):
    """One naive function out of a file of kernels."""
    node = _definition(file, name)
    node.decorator_list = []
    names = {"torch": torch, "F": torch.nn.functional}
    exec(compile(ast.Module([node], []), str(OPS / file), "exec"), names)
    return names[name]


def signature(name):
    """[(parameter, default as text or None)] of a kernel, without **kwargs."""
    arguments = _definition(KERNELS[name], name).args
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + [ast.unparse(x) for x in arguments.defaults]
    return [(x.arg, default) for x, default in zip(arguments.args, defaults)]
