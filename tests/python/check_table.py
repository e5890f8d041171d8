"""The table that gdn2 check prints."""

import re


def rows(result):
    """{tensor: (reference, error, max error, bound, verdict)} of the table."""
    found = {}
    for line in result.stdout.splitlines():
        m = re.fullmatch(r"(\w+) +(\S+) +(\S+) +(\S+) +(\d+e-\d+)  (.+)", line)
        if m:
            found[m[1]] = (*map(float, m.groups()[1:5]), m[6])
    return found
