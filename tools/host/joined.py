"""
Prometheus texts of several bookies as one, each sample with a label that says whose it is.

Knows: the text format as far as its lines: a family's samples stand together, below one HELP and TYPE.
Does not know: any metric.
"""

from collections.abc import Iterable
from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

LABEL = "bookie"


class Family(NamedTuple):
    owner: int  # the text whose HELP and TYPE are kept
    head: list[str]
    samples: list[str]


def joined(texts: Iterable[tuple[str | None, str]]) -> str:
    """From (bookie, its text) pairs; the samples of None, the host itself, get no label."""
    families: dict[str, Family] = {}
    for number, (bookie, text) in enumerate(texts):
        name = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                name = line.split(" ", 3)[2]
                family = families.setdefault(name, Family(number, [], []))
                if family.owner == number:
                    family.head.append(line)
            elif line and not line.startswith("#"):
                family = families.setdefault(name, Family(number, [], []))
                family.samples.append(line if bookie is None else labelled(line, bookie))
    lines = [line for family in families.values() for line in (*family.head, *family.samples)]
    return "\n".join([*lines, ""])


def labelled(sample: str, bookie: str) -> str:
    """A sample with one more label, which comes first."""
    value = bookie.replace("\\", "\\\\").replace('"', '\\"')
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        comma = "" if rest.startswith("}") else ","
        return f'{name}{{{LABEL}="{value}"{comma}{rest}'
    name, _, rest = sample.partition(" ")
    return f'{name}{{{LABEL}="{value}"}} {rest}'
