#!/usr/bin/env python3
"""Times other implementations of the delta rules beside libgdn2, on this machine's processors.

    python bench/peers/run.py --install          once: a virtual environment in build/peers, several GB
    python bench/peers/run.py                    the table; also build/peers/results.json

Every peer runs in a process of its own, which may use as many processors as there are threads. There it first computes a small
case, which is compared with a token loop in float64; then it and libgdn2 take turns on the same inputs, and the medians are
compared. A peer that cannot be installed or loaded is listed with the reason. docs/performance.md tells more.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import install

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("GDN2_BUILD", HERE.parents[1] / "build"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--install", action="store_true", help="first make a virtual environment in build/peers with the peers")
    parser.add_argument("--python", help="the Python that --install makes the environment with (default: the newest found)")
    everyone = ",".join(install.PACKAGES)
    parser.add_argument("--only", default=everyone, help=f"peers, with commas between them (default: {everyone})")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default 1,2)")
    parser.add_argument("--ops", default="forward,train,decode", help="forward, train, decode: some of them (default all)")
    parser.add_argument("--B", type=int, default=0, help="default 1; of decode 64")
    parser.add_argument("--H", type=int, default=0, help="default 6; of decode 32")
    for name, value in (("T", 4096), ("K", 128), ("V", 128)):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"default {value}")
    parser.add_argument("--repeats", type=int, default=5, help="pairs of runs at least (default 5)")
    parser.add_argument("--min-time", type=float, default=2, help="seconds of pairs at least (default 2)")
    parser.add_argument("--max-time", type=float, default=60, help="no pair begins after so many seconds (default 60)")
    parser.add_argument("--time-limit", type=float, default=1800, help="seconds for one peer's process (default 1800)")
    parser.add_argument("--out", type=Path, default=BUILD / "peers" / "results.json")
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # the process of one peer: its module
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(install.PACKAGES):
        parser.error(f"--only: no such peer: {', '.join(sorted(unknown))}")
    if unknown := set(options.ops.split(",")) - {"forward", "train", "decode"}:
        parser.error(f"--ops: no such operation: {', '.join(sorted(unknown))}")
    return options


def measured(options, module, threads):
    """The results of one peer, from a process of its own: a crash, a hang or an exhausted memory is its alone."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [sys.executable, __file__, "--measure", module, "--threads", str(threads)]
        command += ["--ops", options.ops, "--out", out.name]
        for name in ("B", "T", "H", "K", "V", "repeats", "min_time", "max_time"):
            command += [f"--{name.replace('_', '-')}", str(getattr(options, name))]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONWARNINGS": "ignore"}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=options.time_limit)
            lines = done.stderr.strip().splitlines()
            reason = f"ended with {done.returncode}: {lines[-1] if lines else 'nothing said'}" if done.returncode else None
        except subprocess.TimeoutExpired:
            reason = f"the rest took more than {options.time_limit:.0f} s"
        text = Path(out.name).read_text()
        results = json.loads(text) if text else []
        return results + ([{"peer": module, "threads": threads, "unavailable": reason}] if reason else [])


def line(r):
    head = f"{r.get('name', r['peer']):<50} {r.get('rule', ''):<5} {r.get('dtype', ''):<5} {r['threads']:>2} "
    if "unavailable" in r:
        return f"{head} not measured: {r['unavailable']}"
    return (
        f"{head} {r['op']:<8} {r['T']:>5} {r['error']:9.1e} {r['ms']:11.3f} {r['tok_heads_per_s'] / 1e3:10.1f}"
        f" {r['gdn2_ms']:10.3f} {r['gdn2_tok_heads_per_s'] / 1e3:10.1f} {r['ratio']:8.2f}"
    )


def main():
    options = arguments()
    if options.measure:
        import measure  # NumPy is in the environment; the process that installs it may not have it

        results = []
        for result in measure.module(options, BUILD):  # what is there is kept, whatever happens next
            results.append(result)
            options.out.write_text(json.dumps(results))
        return
    if options.install:
        install.everything(BUILD / "peers", options.only.split(","), options.python)
    install.enter(BUILD / "peers")
    print("ktok-h/s: thousand tokens times heads a second. error: the peer's, relative, against float64.")
    print("times: how many times faster libgdn2 is.\n")
    print(
        f"{'peer':<50} {'rule':<5} {'dtype':<5} thr op           T     error          ms   ktok-h/s"
        "    gdn2 ms   ktok-h/s    times"
    )
    results = []
    for threads in map(int, options.threads.split(",")):
        for module in options.only.split(","):
            for r in measured(options, module, threads):
                results.append(r)
                print(line(r), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(f"\nwritten to {options.out}")


if __name__ == "__main__":
    main()
