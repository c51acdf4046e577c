"""Flipped bytes: on one bookie they cost a question to another; on all they are an error that names the entry."""

import pytest
from twisted.logger import globalLogPublisher

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.batch import COLUMN
from quire.log.core.frame import HEADER_BYTES
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import DigestMatch
from quire.protocol.log_errors import LogDamaged, UnknownFormat
from tests.client.fakes.cluster import FakeCluster

# SPDX-License-Identifier: Apache-2.0

DIGEST = Digest(DigestType.CRC32C, b"")
ENTRY = 2
LEDGER_FIELDS = {"ledger": 7, "entry": 15, "LAC": 23, "length": 31, "digest": 33}  # a byte of each, in an entry's body
FRAME_FIELDS = {
    "magic": 0,
    "version": 4,
    "kind": 5,
    "compression": 6,
    "flags": 7,
    "ordinal": 15,
    "offset": 23,
    "stamp": 31,
    "records": 35,
    "bytes": 39,
    "table": 43,
    "body bytes": 47,
    "columns": 48,
    "id of a column": 49,
    "bytes of a column": 53,
    "a key's length": HEADER_BYTES + 1 + 3 * COLUMN.size + 3,
    "a value": -1,
}
UNSEEN = {"stamp", "table", "a value"}  # in what a wrong writer signed


async def written(logs):
    """Four entries with keys and times; the ledger."""
    await logs.create("a")
    owner = await logs.own("a")
    for number in range(4):
        some = [b"%d-%d" % (number, place) for place in range(3)]
        await owner.append_many(some, keys=[b"key", None, b"k"], times_ms=[1, None, 3])
    ledger = (await logs.info("a")).ledger
    await owner.close()
    return ledger


async def rows(logs):
    """What a reader gives, as it is compared."""
    reader = await logs.read("a")
    found = [
        (each.index, each.at, each.value, each.key) async for batch in reader.batches() for each in batch.records()
    ]
    await reader.close()
    return found


class Story:
    """A log on three bookies, and what its entries were."""

    def __init__(self):
        self.cluster = FakeCluster()
        self.logs, self.other = (
            Logs(self.cluster.client(placement="random"), LogOptions(), now=lambda: 9.0) for _ in range(2)
        )
        self.ledger = self.cluster.succeed(written(self.logs))
        self.body = self.stored("b0")[ENTRY]
        self.wanted = self.cluster.succeed(rows(self.other))
        assert len(self.wanted) == 12

    def stored(self, bookie):
        return self.cluster.bookies[bookie].ledgers[self.ledger].entries

    def put(self, body, bookies=("b0", "b1", "b2")):
        for bookie in bookies:
            self.stored(bookie)[ENTRY] = body


def flipped(data, place):
    changed = bytearray(data)
    changed[place] ^= 0x81
    return bytes(changed)


PLACES = {**LEDGER_FIELDS, **{name: place if place < 0 else 36 + place for name, place in FRAME_FIELDS.items()}}


@pytest.mark.parametrize("field", PLACES)
def test_a_flipped_byte(field):
    """
    On one bookie: the records come from another, and the log says which bookie's copy of which entry is damaged.  On
    all: the digest's error, which names the entry; what comes before it is right.
    """
    story, events = Story(), []
    damaged = flipped(story.body, PLACES[field])
    globalLogPublisher.addObserver(events.append)
    try:
        for bookie in story.cluster.bookies:
            story.put(damaged, [bookie])
            assert story.cluster.succeed(rows(story.other)) == story.wanted
            story.put(story.body, [bookie])
    finally:
        globalLogPublisher.removeObserver(events.append)
    named = {(each["bookie"], each["entry"], each["ledger"]) for each in events if "bookie" in each and "entry" in each}
    assert named
    assert named <= {(bookie, ENTRY, story.ledger) for bookie in story.cluster.bookies}
    story.put(damaged)
    error = story.cluster.fails(rows(story.other))
    assert isinstance(error, DigestMatch)
    assert f"ledger {story.ledger}" in str(error)
    story.put(story.body)
    assert story.cluster.succeed(rows(story.other)) == story.wanted


@pytest.mark.parametrize("field", FRAME_FIELDS)
def test_what_a_wrong_writer_signed(field):
    """A field that contradicts the entries before, the counts or the format is named; nothing wrong is given out."""
    story = Story()
    payload = flipped(DIGEST.open(story.ledger, ENTRY, story.body), FRAME_FIELDS[field])
    story.put(DIGEST.entry(story.ledger, ENTRY, ENTRY - 1, 999, payload))
    if field in UNSEEN:
        found = story.cluster.succeed(rows(story.other))
        assert [row[:2] for row in found] == [row[:2] for row in story.wanted]
        return
    error = story.cluster.fails(rows(story.other))
    assert isinstance(error, LogDamaged | UnknownFormat)
    if field != "a key's length":  # which is looked at when keys are asked for
        assert f"ledger {story.ledger}, entry {ENTRY}" in str(error)
