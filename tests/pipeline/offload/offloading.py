"""Runs of an offload for its tests: by a clock of their own, ended at a step of choice."""

from itertools import count
from pathlib import Path
from typing import Any

from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.copies.places import Place
from quire.pipeline.core.ranges import Range
from quire.pipeline.offload.copying import opened, whole_entries
from quire.pipeline.offload.requests import OffloadRequest, OffloadResult, Spread, here, nothing
from quire.pipeline.offload.running import OffloadRun, offload

# SPDX-License-Identifier: Apache-2.0

HOUR = 3600.0
PAYLOADS = [b"%d" % number * (number % 50) for number in range(300)]
NOW = 4e9  # long after whatever clock these machines have
RUNS = (f"run {number}" for number in count())


class Crash(BaseException):
    """The process ends here."""


class Steps:
    """Counts the steps that were reached; raises at one of them."""

    def __init__(self, crash_at: int | None = None) -> None:
        self.reached: list[str] = []
        self._crash_at = crash_at

    def __call__(self, step: str) -> None:
        self.reached.append(step)
        if len(self.reached) - 1 == self._crash_at:
            raise Crash(step)


def run_of(ours: Cluster, to: Path, at: float = NOW, spread: Spread = here, **request: Any) -> OffloadRun:
    """For tests of single steps."""
    instance = ours.wait(ours.client.store.cluster).instance_id
    place = Place(str(to))
    return OffloadRun(
        ours, OffloadRequest(ours.uri, str(to), **request), spread, lambda: at, nothing, next(RUNS), place, instance
    )


def ran(ours: Cluster, to: Path, at: float = NOW, steps: Any = nothing, **request: Any) -> OffloadResult:
    """One run at a time of choice."""
    return offload(ours, OffloadRequest(ours.uri, str(to), **request), here, lambda: at, steps)


def reading(ours: Cluster, to: Path) -> Cluster:
    """A client that looks for copies, too."""
    return cluster(ours.uri, str(to))


def bodies_of(ours: Cluster, ledger: int) -> list[bytes]:
    """The entries as bookies have them, heads and digests included."""

    async def story() -> list[bytes]:
        record = await opened(ours.client, ledger)
        wanted = Range(ledger, 0, record.metadata.last_entry)
        return [body async for run in whole_entries(ours.client, record, wanted) for body in run.payloads]

    return ours.wait(story)


def ids(ours: Cluster) -> set[int]:
    """Of all ledgers that the store knows."""
    return set(ours.wait(lambda: ours.client.ledger_ids(-1, 10_000)))
