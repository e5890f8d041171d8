"""The process of one peer: checks it, then times it in turns with libgdn2."""

import importlib
import importlib.metadata
import os
import re
import statistics
import time

import install
import library
from problem import WORK, Shape, inputs, reference, worst_error

# Of the check. The seed's fallback wants whole chunks of 256 tokens.
SMALL = Shape(B=1, T=256, H=2)
# Threads of one runtime that still spin would slow the other.
PAUSE = 0.02


def seconds(function):
    time.sleep(PAUSE)
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def in_turns(peer, yardstick, options):
    """Medians of the seconds of both."""
    both = [], []
    for function in (peer, yardstick):  # compilation, pages, threads
        function()
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < options.max_time or not both[0]:
        if len(both[0]) >= options.repeats and passed >= options.min_time:
            break
        both[0].append(seconds(peer))
        both[1].append(seconds(yardstick))
    return [statistics.median(times) for times in both], len(both[0])


def checked(peer, rule, op, threads):
    """The error of a small case. Raises if the peer computes something else."""
    x = inputs(rule, SMALL)
    peer.start(x, threads)
    found = {"o": peer.output(peer.forward())} if op == "forward" else peer.gradients(peer.train())
    error, where = worst_error(found, reference(x, rule, op == "train"))
    if not error <= peer.tolerance:
        raise ArithmeticError(f"{op}: {where} has the relative error {error:.2g}; {peer.tolerance:g} would be right")
    return error


def one(peer, yardstick, op, options, threads):
    shape = Shape(options.B, min(options.T, peer.longest[op]), options.H, options.K, options.V)
    error = checked(peer, peer.rule, op, threads)
    own_error = checked(yardstick, peer.rule, op, threads)
    x = inputs(peer.rule, shape)
    peer.start(x, threads)
    yardstick.start(x, threads)
    (theirs, ours), pairs = in_turns(getattr(peer, op), getattr(yardstick, op), options)
    tok_heads = shape.B * shape.T * shape.H
    return {
        "op": op,
        **vars(shape),
        "error": error,
        "gdn2_error": own_error,
        "pairs": pairs,
        "ms": 1e3 * theirs,
        "tok_heads_per_s": tok_heads / theirs,
        "gflops_useful": 1e-9 * WORK[op] * shape.K * shape.V * tok_heads / theirs,
        "gdn2_dtype": yardstick.dtype,
        "gdn2_ms": 1e3 * ours,
        "gdn2_tok_heads_per_s": tok_heads / ours,
        "gdn2_gflops_useful": 1e-9 * WORK[op] * shape.K * shape.V * tok_heads / ours,
        "ratio": theirs / ours,
    }


def sentence(error):
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200] if text else ''}"


def versions(packages):
    """{"torch": "2.15.0"} of what pip was asked for."""
    names = [re.match(r"[\w-]+", package)[0] for package in packages]
    return {name: importlib.metadata.version(name) for name in names}


def module(options, build):
    """Yields a dictionary for each peer of the module and each operation, or one that says why there is none."""
    threads = int(options.threads)
    base = {"peer": options.measure, "threads": threads}
    processors = sorted(os.sched_getaffinity(0))
    if threads > len(processors):
        yield base | {"unavailable": f"{threads} threads, but {len(processors)} processors"}
        return
    os.sched_setaffinity(0, processors[:threads])  # before anything is imported: JAX counts what it may use
    try:
        compiled = library.compiled(build)
        peers = list(importlib.import_module(f"peer_{options.measure}").peers())
        base["versions"] = versions(sum(install.PACKAGES[options.measure], []))
    except Exception as error:
        yield base | {"unavailable": sentence(error)}
        return
    for peer in peers:
        about = base | {"name": peer.name, "rule": peer.rule, "dtype": peer.dtype}
        for op in options.ops.split(","):
            if op == "train" and not peer.trains:
                continue
            try:
                yield about | one(peer, library.Library(compiled, peer.rule, peer.dtype), op, options, threads)
            except Exception as error:
                yield about | {"op": op, "unavailable": sentence(error)}
