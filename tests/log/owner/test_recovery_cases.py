"""
Every way in which the last entries of a dead owner can lie on three bookies: what the next owner finds is what a small
model says.
"""

from itertools import compress, product, takewhile
from random import SystemRandom

import pytest

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.batch import Records, encode_body
from quire.log.core.edits import Claim, Me, OpenSegment
from quire.log.core.frame import Kind, pack_entries
from quire.log.core.values import Owner
from quire.log.store.editing import LogRecords
from quire.protocol.digest import Digest, DigestType
from tests.client.fakes.cluster import FakeCluster, Stored

# SPDX-License-Identifier: Apache-2.0

BOOKIES = ("b0", "b1", "b2")
HOLDERS = [frozenset(compress(BOOKIES, chosen)) for chosen in product((0, 1), repeat=3)]
CASES = list(product(HOLDERS, repeat=3))
SURE = 2  # entries that all have
DIGEST = Digest(DigestType.CRC32C, b"")


def ends(holders, down):
    """
    How many entries the log may have: up to one that two of three bookies can deny, a dead one being none of them; each
    before it is on a bookie that is asked.  Where several will do, who is asked first decides.
    """
    found = set()
    for end, of_entry in enumerate([*holders, frozenset()], SURE):
        living = of_entry - {down}
        if 3 - (down is not None) - len(living) >= 2:
            found.add(end)
        if not living:
            break
    return found


def entry_of(ledger, entry):
    """As the dead owner wrote it: one record, and those that all have are confirmed."""
    (payload,) = pack_entries(
        Kind.BATCH,
        encode_body(Records([b"%d" % entry])),
        ordinal=entry,
        offset=entry,
        stamp=1,
        records=1,
        value_bytes=1,
    )
    return DIGEST.entry(ledger, entry, min(entry, SURE) - 1, (entry + 1) * len(payload), payload)


async def left_by_a_dead_owner(logs, name, cluster, holders):
    """A log with an open segment whose last entries lie so."""
    info = await logs.create(name)
    records = LogRecords(logs.bk.store.records, logs.bk.reactor, logs.bk.random, lambda: 1.0, info.id, name)
    writer = await logs.bk.create_ledger()
    writer.shut_down()
    await records.edit(Claim(Owner("dead", 0)))
    await records.edit(OpenSegment(Me("dead", 1), writer.id))
    everywhere = [frozenset(BOOKIES)] * SURE
    for entry, of_entry in enumerate([*everywhere, *holders]):
        for bookie in of_entry:
            stored = cluster.bookies[bookie].ledgers.setdefault(writer.id, Stored(key=DIGEST.master_key))
            stored.entries[entry] = entry_of(writer.id, entry)


async def taken_over(logs, other, name):
    """What the log holds for the next owner, and for a reader."""
    owner = await logs.own(name)
    end = owner.end.index
    await owner.close()
    reader = await other.read(name)
    return end, [value async for batch in reader.batches() for value in batch.values]


def check(down, cases):
    """Each case ends where it may, for owner and reader; how many of the last entries were acknowledged in all."""
    acknowledged = 0
    for number, holders in enumerate(cases):
        if number % 32 == 0:  # timers of what is over make a clock slow
            cluster = FakeCluster()
            logs, other = (Logs(cluster.client(placement="random"), LogOptions()) for _ in range(2))
        name = f"log {number}"
        cluster.succeed(left_by_a_dead_owner(logs, name, cluster, holders))
        if down is not None:
            cluster.kill(down)
        end, values = cluster.succeed(taken_over(logs, other, name))
        assert end in ends(holders, down), (holders, down)
        assert values == [b"%d" % entry for entry in range(end)], (holders, down)
        if down is not None:
            cluster.restart(down)
        whole = sum(takewhile(bool, (len(of_entry) >= 2 for of_entry in holders)))  # on an ack quorum
        acknowledged += whole
        assert end >= SURE + whole
    return acknowledged


@pytest.mark.parametrize("down", [None, *BOOKIES])
def test_cases_drawn_anew(down):
    """32 of the 512 for each bookie that is down, or none; another choice each time, which a failure names."""
    check(down, SystemRandom().sample(CASES, 32))


@pytest.mark.long
@pytest.mark.parametrize("down", [None, *BOOKIES])
def test_all_cases(down):
    """512 for each bookie that is down, or none: 2,048."""
    assert check(down, CASES) == 448
