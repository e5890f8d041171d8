"""What a count of byte sequences predicts: bits per byte of the held-out part of a text, to compare gdn2 train with.

    python bench/ngram.py FILE...

The last tenth of the text is held out, and the same first 64 windows of 256 bytes are scored that gdn2 train looks at with its
defaults. An n-gram model predicts a byte from the n - 1 before it; the counts of each length are mixed with those of the next
shorter one by Witten and Bell's method, down to all bytes alike.
"""

import sys
from collections import defaultdict
from math import log2
from pathlib import Path

LENGTH, SAMPLES, VALIDATION = 256, 64, 0.1


def count(text, order):
    """counts[k][context of k bytes][next byte]."""
    counts = [defaultdict(lambda: defaultdict(int)) for _ in range(order)]
    for i, byte in enumerate(text):
        for k in range(min(order, i + 1)):
            counts[k][text[i - k : i]][byte] += 1
    return counts


def probability(counts, totals, context, byte):
    p = 1 / 256
    for k, level in enumerate(counts):
        seen = level.get(context[len(context) - k :]) if k <= len(context) else None
        if seen is None:
            return p
        p = (seen.get(byte, 0) + len(seen) * p) / (totals[k][context[len(context) - k :]] + len(seen))
    return p


def bits(text, order):
    split = len(text) - int(len(text) * VALIDATION)
    counts, held_out = count(text[:split], order), text[split:]
    totals = [{context: sum(seen.values()) for context, seen in level.items()} for level in counts]
    scored = min(SAMPLES, (len(held_out) - 1) // LENGTH) * LENGTH
    context = lambda i: held_out[max(0, i - order + 1) : i]
    return sum(-log2(probability(counts, totals, context(i), held_out[i])) for i in range(1, scored + 1)) / scored


if __name__ == "__main__":
    joined = b"".join(Path(name).read_bytes() for name in sys.argv[1:])
    for order in (1, 2, 3, 4, 5, 6):
        print(f"{order}-gram {bits(joined, order):.4f} bits/byte", flush=True)
