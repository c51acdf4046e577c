"""
AutoRecovery in one process: a candidate for auditor, and a replication worker.

Knows: that both use one client, and the order of their ends.  Does not know: who runs them.
"""

from typing import cast

from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.conf.autorecovery import AutoRecoveryOptions
from quire.replication.autorecovery.audits.auditor import Auditor
from quire.replication.autorecovery.election import Candidate
from quire.replication.autorecovery.worker import Worker

# SPDX-License-Identifier: Apache-2.0


class AutoRecovery:
    """One process's part.  `bookie`: the id that its vote names."""

    def __init__(self, client: Client, bookie: str, options: AutoRecoveryOptions) -> None:
        self.candidate = Candidate(client, bookie, lambda blind: Auditor(client, options, blind))
        self.worker = Worker(client, options)

    def start(self) -> None:
        """Once.  It works as soon as the store answers."""
        self.candidate.start()
        self.worker.start()

    def stop(self) -> Deferred[None]:
        """Gives back the vote and the locks; what is under way ends.  The client stays open."""
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self.candidate.stop()
        await self.worker.stop()

    @property
    def auditor(self) -> Auditor | None:
        """While it is the cluster's."""
        return cast("Auditor | None", self.candidate.auditor)

    def status(self) -> dict[str, object]:
        """Plain values for people and programs."""
        auditor, worker = self.auditor, self.worker
        return {
            "auditor": auditor is not None,
            "vote": self.candidate.vote,
            "lost": sorted(auditor.absences.lost) if auditor else [],
            "away": sorted(auditor.absences.away) if auditor else [],
            "marked": auditor.losses.marked if auditor else 0,
            "figures": auditor.figures if auditor else {},
            "working": sorted(worker.working),
            "repaired": worker.tally.repaired,
            "failed": worker.tally.failed,
            "entries": worker.tally.entries,
            "bytes": worker.tally.bytes,
            "parked": {
                each.name if each is not None else "FAILED": count
                for each, count in worker.waiting.parked.counts().items()
            },
        }
