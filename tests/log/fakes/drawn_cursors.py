"""
Entries of cursors' ledgers drawn a second time, by hand, for the vectors of `drawn`.

Knows: the layout, as it is drawn in the package.  Does not know: the package's code.
"""

from collections.abc import Iterator
from typing import Any

# SPDX-License-Identifier: Apache-2.0

KINDS = {"checkpoint": 1, "change": 2}


def number(value: int) -> bytes:
    """7 bits a byte, the low ones first; all but the last have the top bit."""
    found = []
    while value > 127:
        found.append(value % 128 + 128)
        value //= 128
    return bytes([*found, value])


def drawn(said: dict[str, Any]) -> bytes:
    """The entry that says this."""
    found = b"qcur" + bytes((1, KINDS[said["kind"]]))
    for name in ("part", "parts", "zero"):
        found += said.get(name, 0).to_bytes(2, "big")
    found += said["mark"].to_bytes(8, "big")
    at = said["mark"]
    for start, stop in said["runs"]:
        found += number(start - at) + number(stop - start)
        at = stop
    return found


def entry(kind: str, mark: int, *runs: list[int], part: int = 0, parts: int = 1) -> dict[str, Any]:
    """What an entry says; a run is its first index, and the one after the last."""
    return {"kind": kind, "part": part, "parts": parts, "mark": mark, "runs": list(runs)}


ACCEPTED = {
    "a change of one record": entry("change", 10, [12, 13]),
    "a change of the mark alone": entry("change", 1 << 40),
    "runs and gaps of several bytes": entry(
        "change", 5, [6, 133], [134, 16_600], [20_000, 1 << 62], [1 << 62, 5 << 60]
    ),
    "a checkpoint of nothing": entry("checkpoint", 0),
    "the second part of a checkpoint": entry("checkpoint", 7, [900, 901], [903, 910], part=1, parts=3),
    "up to the last index": entry("change", (1 << 63) - 3, [(1 << 63) - 2, (1 << 63) - 1]),
}


def lines() -> Iterator[dict[str, Any]]:
    """Of `cursors.jsonl`."""
    for case, said in ACCEPTED.items():
        yield {"case": case, "means": said, "again": True, "hex": drawn(said).hex()}
    one = drawn(ACCEPTED["a change of one record"])
    refused = {
        "version 2": ("UnknownFormat", one[:4] + b"\2" + one[5:]),
        "kind 3": ("UnknownFormat", one[:5] + b"\3" + one[6:]),
        "bytes that are to be 0": ("UnknownFormat", one[:11] + b"\1" + one[12:]),
        "another magic": ("LogDamaged", b"qlog" + one[4:]),
        "a header that is cut": ("LogDamaged", one[:19]),
        "a run without its length": ("LogDamaged", one[:-1]),
        "a run of no record": ("LogDamaged", one[:-1] + b"\0"),
        "a number that is cut": ("LogDamaged", one[:-1] + b"\x81"),
        "a part behind the last": ("LogDamaged", drawn(entry("checkpoint", 1, part=3, parts=3))),
        "a change in two parts": ("LogDamaged", drawn(entry("change", 1, parts=2))),
        "a mark above all indexes": ("LogDamaged", drawn(entry("change", 1 << 63))),
        "a run above all indexes": ("LogDamaged", drawn(entry("change", (1 << 63) - 2, [(1 << 63) - 1, 1 << 63]))),
    }
    for case, (error, data) in refused.items():
        yield {"case": case, "refused": error, "hex": data.hex()}
