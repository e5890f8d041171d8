"""The process of one peer: checks it, then times it in turns with libgdn2."""

import importlib
import importlib.metadata
import os
import re
import statistics
import time

import install
import library
from problem import WORK, Shape, decode_inputs, decode_reference, inputs, reference, worst_error

# Of the check. The seed's fallback wants whole chunks of 256 tokens.
SMALL = Shape(B=1, T=256, H=2)
SMALL_DECODE = Shape(B=3, T=1, H=2)
# Threads of one runtime that still spin would slow the other; onnxruntime's do for 45 ms.
PAUSE = 0.02
LONGEST_PAUSE = 1
# A sample of a short call is as many calls as take this long, the first of which is not timed: it finds the other's data in cache.
SAMPLE = 2e-3


def pause():
    """Until the process has been idle for PAUSE."""
    end = time.perf_counter() + LONGEST_PAUSE
    idle = False
    while not idle and time.perf_counter() < end:
        before = time.process_time()
        time.sleep(PAUSE)
        idle = time.process_time() - before < 0.1 * PAUSE


def seconds(function, calls):
    """Of one call, the mean of `calls` in a row."""
    pause()
    if calls > 1:
        function()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def in_turns(peer, yardstick, options):
    """Medians of the seconds of both."""
    both, calls = ([], []), []
    for function in (peer, yardstick):
        function()  # compilation, pages, threads
        calls.append(int(SAMPLE / seconds(function, 1)) + 1)
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < options.max_time or not both[0]:
        if len(both[0]) >= options.repeats and passed >= options.min_time:
            break
        both[0].append(seconds(peer, calls[0]))
        both[1].append(seconds(yardstick, calls[1]))
    return [statistics.median(times) for times in both], len(both[0])


def started(peers, rule, op, shape, threads):
    """The inputs, which the peers have taken."""
    x = (decode_inputs if op == "decode" else inputs)(rule, shape)
    for peer in peers:
        (peer.start_decode if op == "decode" else peer.start)(x, threads)
    return x


def checked(peer, rule, op, threads):
    """The error of a small case. Raises if the peer computes something else."""
    x = started([peer], rule, op, SMALL_DECODE if op == "decode" else SMALL, threads)
    if op == "decode":
        found, wanted = peer.decoded(peer.decode()), decode_reference(x, rule)
    else:
        found = {"o": peer.output(peer.forward())} if op == "forward" else peer.gradients(peer.train())
        wanted = reference(x, rule, op == "train")
    error, where = worst_error(found, wanted)
    if not error <= peer.tolerance:
        raise ArithmeticError(f"{op}: {where} has the relative error {error:.2g}; {peer.tolerance:g} would be right")
    return error


def one(peer, yardstick, op, options, threads):
    B, H = (options.B or 64, options.H or 32) if op == "decode" else (options.B or 1, options.H or 6)
    shape = Shape(B, min(options.T, peer.longest[op]), H, options.K, options.V)
    error = checked(peer, peer.rule, op, threads)
    own_error = checked(yardstick, peer.rule, op, threads)
    started([peer, yardstick], peer.rule, op, shape, threads)
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
            if op not in peer.ops:
                continue
            try:
                yield about | one(peer, library.Library(compiled, peer.rule, peer.dtype, peer.raw), op, options, threads)
            except Exception as error:
                yield about | {"op": op, "unavailable": sentence(error)}
