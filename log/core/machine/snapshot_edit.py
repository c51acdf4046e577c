"""
The edit that names a snapshot.

Knows: which snapshots are kept, and that one which is not newer than the newest is none.
Does not know: tries, versions, ledgers.

Safety: the caller has looked the ledger up, closed and complete, after the version that is replaced was read; only a
newer snapshot than the newest is named, so the log from the oldest kept one on is there.
"""

from dataclasses import dataclass, replace

from quire.log.core.edits import check_exists, is_doomed
from quire.log.core.manifest import Manifest
from quire.log.core.values import Doomed, Snapshot

# SPDX-License-Identifier: Apache-2.0

KEPT = 3


@dataclass(frozen=True, slots=True)
class NameSnapshot:
    """
    The newest snapshot; the oldest of more than three goes.  One that is not newer, or that the log no longer
    continues, goes itself.
    """

    snapshot: Snapshot
    now_ms: int
    name = "snapshot"

    def apply(self, manifest: Manifest) -> Manifest | None:
        check_exists(manifest)
        made, kept = self.snapshot, manifest.snapshots
        if is_doomed(manifest, made.ledger) or any(each.ledger == made.ledger for each in kept):
            return None
        if made.index < manifest.begin.index or (kept and made.index <= newest(manifest)):
            return replace(manifest, doomed=(*manifest.doomed, Doomed(made.ledger, "old snapshot", self.now_ms)))
        kept = (*kept, made)
        gone = [Doomed(each.ledger, "old snapshot", self.now_ms) for each in kept[:-KEPT]]
        return replace(manifest, snapshots=kept[-KEPT:], doomed=(*manifest.doomed, *gone))


def newest(manifest: Manifest) -> int:
    """The index of the newest snapshot; 0 when there is none."""
    return max((each.index for each in manifest.snapshots), default=0)
