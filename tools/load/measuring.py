"""
What a benchmark measures: latencies, CPU seconds, and the counters of the bookies.

Knows: percentiles over (latency, entries) pairs, /proc, and the Prometheus text that bookies show.
Does not know: what is run, how that text is had.
"""

import os
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# SPDX-License-Identifier: Apache-2.0

CPU_METRIC = "process_cpu_seconds_total"
HISTOGRAM_ROWS = 16
HISTOGRAM_WIDTH = 48


class Latencies:
    """Seconds from a batch's start to its end, with the number of entries of each batch."""

    def __init__(self) -> None:
        self._seconds = array("d")
        self._entries = array("q")

    def add(self, seconds: float, entries: int) -> None:
        self._seconds.append(seconds)
        self._entries.append(entries)

    def __len__(self) -> int:
        return len(self._seconds)

    def sorted(self) -> list[tuple[float, int]]:
        return sorted(zip(self._seconds, self._entries, strict=True))

    def percentiles(self, shares: Sequence[float]) -> list[float]:
        """
        The latency, in seconds, below or at which each share (0 to 1, ascending) of the entries is; 0 when there are
        none.
        """
        ordered = self.sorted()
        total = sum(self._entries)
        out: list[float] = []
        at = seen = 0
        for share in shares:
            while at < len(ordered) and seen + ordered[at][1] <= share * total:
                seen += ordered[at][1]
                at += 1
            out.append(ordered[min(at, len(ordered) - 1)][0] if ordered else 0.0)
        return out

    def histogram(self) -> list[str]:
        """Bars of entries over latency, each row's bound twice the last one's or, for a narrow spread, 1.3 times."""
        ordered = self.sorted()
        if not ordered:
            return []
        low, high = max(ordered[0][0], 1e-6), max(ordered[-1][0], 1e-6)
        factor = max(1.05, (high / low) ** (1 / HISTOGRAM_ROWS))
        rows: list[tuple[float, int]] = []
        bound, count, at = low * factor, 0, 0
        while at < len(ordered):
            if ordered[at][0] <= bound or bound > high:
                count += ordered[at][1]
                at += 1
            else:
                rows.append((bound, count))
                bound, count = bound * factor, 0
        rows.append((bound, count))
        most = max(count for _, count in rows)
        return [
            f"  <= {bound * 1e3:9.3f} ms {count:10,} {'#' * -(-count * HISTOGRAM_WIDTH // most)}"
            for bound, count in rows
        ]


class Counters(NamedTuple):
    """
    One look at everything that a run moves: CPU seconds of this process and of the bookies (None: unknown), and the
    sums of the bookies' metrics by name.
    """

    client_cpu_s: float
    bookie_cpu_s: float | None
    metrics: Mapping[str, float]


def look(texts: Sequence[Callable[[], str]], pids: Sequence[int]) -> Counters:
    """
    Reads all counters once: `texts` give those of one bookie each, and block.  Call it on a thread, before and after a
    run.
    """
    sums: dict[str, float] = {}
    for text in texts:
        for name, value in scrape(text).items():
            sums[name] = sums.get(name, 0.0) + value
    bookies = sum(map(process_cpu, pids)) if pids else sums.get(CPU_METRIC)
    return Counters(time.process_time(), bookies, sums)


def scrape(fetch: Callable[[], str]) -> dict[str, float]:
    """The samples of a Prometheus text, labels summed up; {} when there is no answer."""
    try:
        text = fetch()
    except OSError:
        return {}
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0].strip()
        try:
            found[name] = found.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return found


def process_cpu(pid: int) -> float:
    """CPU seconds of a local process, its threads included; OSError when there is none."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
