"""What a failed read of a segment means, by the manifest of now."""

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from quire.log.core import upkeep_edits
from quire.log.core.values import Segment
from quire.log.reader.view import LogView, judged
from quire.protocol.errors import NoSuchLedgerExists, NoSuchLedgerExistsOnMetadataServer, Timeout
from quire.protocol.log_errors import NoSuchLog, SegmentLost
from tests.log.store.test_editing import World
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

TIMEOUT, MISSING = Timeout("no answer"), NoSuchLedgerExistsOnMetadataServer("missing")


class Ledgers:
    """Says whether a ledger is there."""

    def __init__(self, is_there):
        self.metadata = lambda _ledger: succeed(None) if is_there else fail(MISSING)


async def viewed():
    """A log of two closed segments and an open one, and a view that knows it."""
    world = World()
    handle = await world.made()
    segments = (*(Segment(n, 70 + n, 1, 5 * n, 9 * n, 5, 9, 1, (n, n)) for n in range(2)), Segment(2, 72, 1, 10, 18))
    manifest = replace((await handle.read()).value, segments=segments, next=3)
    await handle.records.write(handle.path, manifest.encode(), handle.known.version)
    await handle.read()
    view = LogView(world.handle(), world.clock, world.random, 1.0)
    return handle, view, await view.fresh()


def judge(view, known, segment, error, is_there=True, on_loss="raise"):
    return Deferred.fromCoroutine(judged(Ledgers(is_there), view, known, segment, error, on_loss))


@pytest.mark.parametrize("error", [TIMEOUT, MISSING, NoSuchLedgerExists("a bookie has not heard of it")])
def test_nothing_has_changed(error):
    """The read's own error; also when only the bookies, or an old answer of the store, do not know the ledger."""

    async def story():
        _handle, view, known = await viewed()
        for segment in (None, *known.segments):
            assert await failing(judge(view, known, segment, error), type(error)) is error

    run(story)


def test_a_ledger_that_is_missing():
    """`SegmentLost` that names the segment; a closed one may be passed over, an open one never."""

    async def story():
        _handle, view, known = await viewed()
        error = await failing(judge(view, known, known.segments[1], MISSING, is_there=False), SegmentLost)
        assert "segment 1 of the log 'orders', ledger 71, is gone, and with it its records from index 5 to 9" in str(
            error
        )
        found = await judge(view, known, known.segments[1], MISSING, is_there=False, on_loss="skip")
        assert found == (known, known.segments[1])
        await failing(judge(view, known, known.segments[2], MISSING, is_there=False, on_loss="skip"), SegmentLost)

    run(story)


def test_a_segment_that_changed():
    """Trimmed, given up or closed meanwhile: reading goes on with the manifest of now."""

    async def story():
        handle, view, known = await viewed()
        await handle.edit(upkeep_edits.Trim(1, 5, 9, 1, {}))
        await handle.edit(upkeep_edits.GiveUp(known.segments[1], 5, 1, "operator"))
        assert (await judge(view, known, None, TIMEOUT))[0].begin.index == 5
        for segment in known.segments[:2]:
            manifest, gone = await judge(view, known, segment, MISSING, is_there=False)
            assert (manifest.begin.index, gone) == (5, None)
        now = await view.fresh()
        await failing(judge(view, now, now.segments[0], SegmentLost("it was given up")), SegmentLost)
        assert (await judge(view, now, now.segments[0], SegmentLost("it was given up"), on_loss="skip"))[1].n == 1
        await handle.edit(upkeep_edits.Delete())
        await failing(judge(view, known, known.segments[2], MISSING), NoSuchLog)

    run(story)
