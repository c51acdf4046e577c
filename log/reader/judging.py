"""
What a failed read of a segment means: the manifest says it, which is looked at before anything is judged.

Knows: that a segment may have been trimmed, closed, moved elsewhere or given up since, and that a ledger may be
missing.
Does not know: what the reader does about it.

Safety: absence is judged after a `sync` only.
"""

from quire.client.api import Client
from quire.log.core.manifest import DELETING, Manifest, lost
from quire.log.core.values import Segment
from quire.log.reader.view import LogView, OrSkip
from quire.protocol.errors import LedgerError, NoSuchLedger, NoSuchLedgerExistsOnMetadataServer
from quire.protocol.log_errors import LogDamaged, NoSuchLog, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


async def judged(
    client: Client,
    view: LogView,
    known: Manifest,
    segment: Segment | None,
    error: LedgerError,
    on_loss: OrSkip = "raise",
) -> tuple[Manifest, Segment | None]:
    """
    The manifest of now, when with it reading can go on: the segment (None: it was not found, by the manifest that was
    known) was trimmed, closed, moved, taken out or given up meanwhile.  With it the segment, if its records are gone
    and `on_loss` says to pass over them.  Else what the read fails with: `SegmentLost`, `NoSuchLog`, or the error
    itself.
    """
    manifest = await view.fresh()
    check_there(manifest)
    if segment is None:
        if manifest is known:
            raise error
        return manifest, None
    now = await view.segment_numbered(manifest, segment.n)
    if now is None or _kind(now) != _kind(segment):
        return manifest, None
    if not segment.lost and (
        not isinstance(error, NoSuchLedgerExistsOnMetadataServer) or await _is_there(client, segment)
    ):
        raise named(manifest, error)
    if on_loss == "raise" or segment.is_open:
        raise lost(manifest, now) from None
    return manifest, now


def _kind(segment: Segment) -> tuple[bool, bool, bool]:
    return segment.is_open, segment.lost, segment.is_moved


async def _is_there(client: Client, segment: Segment) -> bool:
    try:
        await client.metadata(segment.ledger)
    except NoSuchLedger:
        return False
    return True


def check_there(manifest: Manifest) -> None:
    """`NoSuchLog` when the log is being deleted."""
    if manifest.state == DELETING:
        raise NoSuchLog(f"the log {manifest.name!r} is being deleted: `quire log list` shows those that there are")


def named(manifest: Manifest, error: LedgerError) -> LedgerError:
    """An error of an entry with the name of its log."""
    if isinstance(error, LogDamaged):
        return LogDamaged(f"the log {manifest.name!r}: {error}; `quire log check {manifest.name}` looks further")
    return UnknownFormat(f"the log {manifest.name!r}: {error}") if isinstance(error, UnknownFormat) else error
