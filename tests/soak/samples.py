"""
What is measured of a soak: of each process what the kernel says, of each bookie its disk, of the cluster how many
znodes, ledgers and orphans it has.  Everything also goes into a file of lines of JSON.

Knows: where each number comes from, and how much of it may grow in an hour.
Does not know: what growth is (`slopes`).
"""

import json
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from quire.log.blocking import Logs
from quire.protocol.errors import LedgerError
from tests.soak.processes import Member
from tests.soak.slopes import Judged, Sample, judge

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
ORPHAN_S = 120.0  # a younger one is perhaps about to be named
# What may be added in an hour: so much, or this part of the level.  Memory of a process in Python goes up by pieces
# that are given back late, so a part of it is allowed that a leak of anything that is done each second is above.
ALLOWED: dict[str, tuple[float, float]] = {
    "memory MiB": (1.5, 0.03),
    "descriptors": (1.0, 0.02),
    "threads": (0.5, 0.02),
    "blocks": (2000.0, 0.02),
    "disk MiB": (1.0, 0.05),
    "znodes": (20.0, 0.03),
    "ephemerals": (5.0, 0.02),
    "watches": (20.0, 0.03),
    "connections": (1.0, 0.02),
    "ledgers": (10.0, 0.03),
    "orphans": (2.0, 0.05),
}
OF_KIND = {("store", "memory MiB"): (50.0, 0.0)}  # a Java takes what it may before it collects
Lives = dict[str, list[list[Sample]]]  # of each process


class Samples:
    """All that was measured, by kind and quantity."""

    def __init__(self, file: Path) -> None:
        self._lives: dict[tuple[str, str], Lives] = {}
        self._newest: dict[str, tuple[int | str, float]] = {}  # process -> its life, and when that was first seen
        self._lock = threading.Lock()  # the cluster is counted in another thread
        self._out = file.open("a", encoding="utf-8")

    def add(self, at: float, kind: str, process: str, life: int | str, values: Mapping[str, float]) -> None:
        """Adds what was measured at a moment of one life of a process."""
        with self._lock:
            for quantity, value in values.items():
                lives = self._lives.setdefault((kind, quantity), {}).setdefault(process, [])
                if not lives or self._newest.get(f"{process} {quantity}") != life:
                    lives.append([])
                    self._newest[f"{process} {quantity}"] = life
                lives[-1].append((at, value))
            line = {"at": round(at, 1), "kind": kind, "process": process, "life": life, **values}
            self._out.write(json.dumps(line) + "\n")
            self._out.flush()

    def newest(self, kind: str, quantity: str) -> list[float]:
        """The last value of each process."""
        with self._lock:
            return [lives[-1][-1][1] for lives in self._lives.get((kind, quantity), {}).values() if lives]

    def rows(self, process_warm_s: float, cluster_warm_s: float, block_s: float) -> list[Judged]:
        """
        The table.  What a process has begins anew with it, and takes the one time until it goes level; what the cluster
        and its disks have, the other.
        """
        rows = []
        for (kind, quantity), lives in self._lives.items():
            warm_s = cluster_warm_s if kind == "cluster" or quantity == "disk MiB" else process_warm_s
            rows += judge(kind, quantity, lives, OF_KIND.get((kind, quantity), ALLOWED[quantity]), warm_s, block_s)
        return rows


def process_of(pid: int) -> dict[str, float]:
    """What the kernel says of a process; nothing of one that is gone."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return {
            "memory MiB": int(status["RssAnon"].split()[0]) / 1024,
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(status["Threads"]),
        }
    except (OSError, KeyError):
        return {}


def cpu_of(pid: int) -> float:
    """Seconds that a process has used; 0 of one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_of(directories: Iterable[Path]) -> float:
    """MiB that the files below these directories take."""
    taken = 0
    for directory in directories:
        for place, _, names in os.walk(directory):
            for name in names:
                try:
                    taken += os.stat(os.path.join(place, name), follow_symlinks=False).st_blocks * 512
                except FileNotFoundError:
                    continue
    return taken / MIB


def measure(samples: Samples, at: float, members: Iterable[Member], blocks: Path) -> None:
    """Takes a sample of each process that runs; `blocks`: where it says how many blocks its objects take."""
    for member in members:
        if (pid := member.pid) is not None and (values := process_of(pid)):
            with suppress(FileNotFoundError):
                values["blocks"] = float((blocks / str(pid)).read_text())
            samples.add(at, member.kind, member.name, pid, values)


def counted(logs: Logs, orphans: bool) -> dict[str, float]:
    """
    Ledgers, and those without an owner if asked for, of which all go that are old enough, as by an operator's job;
    nothing while the store is away.
    """
    try:
        found = {"ledgers": float(sum(1 for _ in logs.bk.ledgers()))}
        if orphans:
            lost = list(logs.orphans(delete=True, really=True, grace_s=ORPHAN_S))
            found["orphans"] = float(sum(not orphan.deleted for orphan in lost))
    except LedgerError:
        return {}
    return found
