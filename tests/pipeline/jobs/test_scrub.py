"""Scrubs of real bookies, without Spark: every injected fault is found, and none where there is none."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from quire.conf.client import ClientOptions
from quire.pipeline.clients import Cluster, cluster
from quire.pipeline.jobs.scrub import scrub
from quire.replication.scrub.whole import Scrubbing, confirmed
from quire.tools.local_cluster.cluster import LocalCluster
from tests.pipeline.jobs.faults import DIGEST, faulty, filled, good, here, made, payload, rows, send
from tests.pipeline.written import ledger
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def bookies(tmp_path: Path) -> Iterator[LocalCluster]:
    """Four, of this test alone."""
    with LocalCluster(tmp_path / "cluster", 4, options=SMALL) as made:
        yield made


def test_nothing_is_wrong(ours: Cluster) -> None:
    """With closed, open, empty and large ledgers; all copies are read once."""
    ids = [ledger(ours, [b"x" * 500] * 3000), ledger(ours, [b"y"] * 50, close=False), ledger(ours, [])]
    text = ",".join(map(str, ids))
    done = scrub(here, ours.uri, text, Scrubbing(settle_s=0))
    assert done.findings == []
    assert (done.summary.ledgers, done.summary.copies) == (3, 3 * 3050)
    assert done.summary.bytes > 3 * 3000 * 500
    listed = scrub(here, ours.uri, text, Scrubbing("presence", settle_s=0))
    assert (listed.findings, listed.summary.bytes, listed.summary.copies) == ([], 0, 3 * 3050)
    assert scrub(here, ours.uri, text, Scrubbing("metadata")).summary.copies == 0
    sample = scrub(here, ours.uri, text, Scrubbing(sample=0))
    assert (sample.findings, sample.summary.copies) == ([], 0)


def test_every_fault_is_found(ours: Cluster) -> None:
    """As what it is, on the bookie where it is; whatever the lanes and the rate."""
    names = sorted(ours.wait(ours.client.store.bookies).writable)
    one, expected = faulty(ours, names)
    for how in (Scrubbing(settle_s=0), Scrubbing(settle_s=0, lanes=1, bytes_per_second=50e6)):
        assert rows(scrub(here, ours.uri, str(one), how).findings) == expected
    listed = scrub(here, ours.uri, str(one), Scrubbing("presence", settle_s=0))
    assert rows(listed.findings) == [row for row in expected if row[0] == "missing"]


def test_lengths_and_metadata(ours: Cluster) -> None:
    """A length that is not that of the entries; a bookie that nobody knows; not of a ledger that was deleted."""
    names = sorted(ours.wait(ours.client.store.bookies).writable)
    wrong, unknown = made(ours, names, 10, length=7), made(ours, [*names[:2], "nobody:3181"], 0)

    async def fill() -> None:
        for bookie in names:
            await send(ours, wrong, bookie, good(wrong, 10))

    ours.wait(fill)
    found = scrub(here, ours.uri, f"{wrong},{unknown}", Scrubbing()).findings
    assert rows(found) == [("length", "", -1, -1), ("unknown", "nobody:3181", -1, -1)]
    ours.wait(lambda: ours.client.delete_ledger(wrong))
    assert rows(ours.wait(lambda: confirmed(ours.client, found))) == [("unknown", "nobody:3181", -1, -1)]


def test_a_log_that_is_cut_off_or_altered(bookies: LocalCluster) -> None:
    """A bit flipped, two entries swapped, the end gone: all that it can't give, and no more than that, is found."""
    ours = cluster(bookies.uri)
    victim = bookies.ids[0]
    others = [bookie for bookie in bookies.ids if bookie != victim]
    one = filled(ours, [victim, *others[:2]], 3000)
    assert bookies.stop_bookie(victim)
    logs = sorted((bookies.bookie(victim).conf.parent / "ledgers").rglob("*.log"), key=lambda path: path.stat().st_size)
    data = bytearray(logs[-1].read_bytes())
    at = data.index(b"entry 000100")
    data[at] ^= 1
    one_body, next_body = (data.index(b"entry 000%d" % entry) - DIGEST.overhead for entry in (200, 201))
    size = next_body - one_body
    body = DIGEST.overhead + len(payload(0))
    assert body <= size < body + 8
    data[one_body : one_body + body], data[next_body : next_body + body] = (
        data[next_body : next_body + body],
        data[one_body : one_body + body],
    )
    half = data.index(b"entry 002000")
    logs[-1].write_bytes(data[: half + 3])
    bookies.restart(victim)
    found = scrub(here, bookies.uri, str(one), Scrubbing(settle_s=0)).findings
    assert {each.bookie for each in found} == {victim}
    bad = {entry for each in found for entry in range(each.first, each.last + 1)}
    assert bad == {100, 200, 201, *range(2000, 3000)}


def test_no_false_alarm_beside_writers(bookies: LocalCluster) -> None:
    """While ledgers are written, closed and deleted, bookies die under their writers, and are replaced."""
    ours = cluster(bookies.uri)
    over = False
    written = 0

    async def writer(number: int) -> None:
        nonlocal written
        while not over:
            made = await ours.client.create_ledger(ensemble_size=3, write_quorum=2 + number % 2, ack_quorum=2)
            for _ in range(20):
                await made.append_many([b"x" * 200] * 50)
                written += 50
            if number != 1:
                await made.close()
            if number == 2:
                await ours.client.delete_ledger(made.id)

    begun = [ours.wait(lambda number=number: _begun(writer(number))) for number in range(3)]
    for turn in range(3):
        if turn == 1:
            bookies.kill(bookies.ids[3])
        done = scrub(here, bookies.uri, "all", Scrubbing(settle_s=2 * ClientOptions().add_timeout_ms / 1000))
        alarms = [each for each in done.findings if each.bookie != bookies.ids[3]]
        assert alarms == [], turn
        if turn == 0:
            assert done.findings == []
        for each in done.findings if turn == 2 else ():
            # it died before it had what two others had acknowledged: its writer went on without it right behind that
            metadata = ours.wait(partial(ours.client.metadata, each.ledger))
            behind = [one.bookies for one in metadata.fragments if one.first > each.fragment][:1]
            assert (each.kind, metadata.write_quorum) == ("missing", 3)
            assert behind, "the fragment has ended"
            assert bookies.ids[3] not in behind[0]
        if turn == 1:
            bookies.restart(bookies.ids[3])
    over = True

    async def all_end() -> None:
        for each in begun:
            await each[0]

    ours.wait(all_end)
    assert written > 1000


async def _begun(story: object) -> list[Deferred[None]]:
    return [Deferred.fromCoroutine(story)]  # type: ignore[arg-type]  # a coroutine
