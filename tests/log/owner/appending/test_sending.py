"""What an owner sends goes by the window of its ledger's writer, whatever that is."""

import pytest

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.owner.handle import ENTRIES_UNDER_WAY_MAX
from tests.client.fakes.cluster import FakeCluster

# SPDX-License-Identifier: Apache-2.0

KIB = 1 << 10
WINDOWS = [
    {"window_bytes_max": 10 * KIB, "batch_bytes_max": 2 * KIB},
    {"window_entries_max": 3},
    {"replica_backlog_bytes_max": 10 * KIB},
]


def owned(**window):
    """A log that is owned, with a segment, by a client with such windows; the writer of its ledger."""
    world, writers = FakeCluster(), []
    client = world.client(placement="random", **window)
    create = client.create_ledger

    async def created(*arguments, **options):
        writers.append(await create(*arguments, **options))
        return writers[-1]

    client.create_ledger = created
    logs = Logs(client, LogOptions(batch_bytes=1))
    world.succeed(logs.create("a"))
    owner = world.succeed(logs.own("a"))
    world.succeed(owner.append(b"opens"))
    return world, logs, owner, writers[-1]


async def content(logs):
    return [value async for batch in (await logs.read("a")).batches() for value in batch.values]


def told(values):
    """Values that differ."""
    return [b"%d " % number + value for number, value in enumerate(values)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("size", [10, 6 * KIB, 40 * KIB])
def test_large_values_beside_a_small_window(window, size):
    """All are acknowledged in the segment that is open, in order; no writer is lost."""
    world, logs, owner, _writer = owned(**window)
    values = told([bytes(size)] * 20)
    done = [world.outcome(owner.append(value)) for value in values[:10]]
    done.append(world.outcome(owner.append_many(values[10:])))
    done.append(world.outcome(owner.barrier()))
    world.spin(20)
    assert [each.result().index for each in done[:10]] == list(range(1, 11))
    assert done[-1].result().index == 21
    assert owner.records.counters.fences == 0
    assert world.succeed(content(logs)) == [b"opens", *values]
    assert world.succeed(logs.info("a")).segments == 1
    world.succeed(owner.close())


def test_what_a_writer_is_given_is_bounded_by_its_window():
    """However much a log's own window takes; the rest waits, and goes as the bookies answer."""
    world, _logs, owner, writer = owned(window_bytes_max=64 * KIB, batch_bytes_max=16 * KIB)
    world.judge = lambda request: "hold" if request.op == "add" else "pass"
    value, before = bytes(20 * KIB), writer.length
    done = [world.outcome(owner.append(value)) for _ in range(ENTRIES_UNDER_WAY_MAX)]
    world.spin(0.01)
    assert 64 * KIB <= writer.length - before <= (64 + 16 + 2 * 128) * KIB
    while world.let_go():
        world.spin(0.01)
    assert all(each.done for each in done)
    assert [each.result().index for each in done] == list(range(1, len(done) + 1))
    world.succeed(owner.close())


def test_what_waits_for_the_window_when_the_ledger_is_lost():
    """It was never sent there, so it goes into the next segment, once, in order."""
    world, logs, owner, writer = owned(**WINDOWS[0])
    other = world.client()
    values = told([bytes(20 * KIB)] * 40)
    world.judge = lambda request: "hold" if request.op == "add" else "pass"
    done = [world.outcome(owner.append(value)) for value in values]
    world.spin(0.01)
    assert 1 <= writer.last_add_pushed < 40
    world.succeed(other.recover_ledger(writer.id))
    world.judge = lambda _request: "pass"
    world.let_go()
    world.spin(20)
    assert [each.result().index for each in done] == list(range(1, 41))
    assert owner.records.counters.fences == 1
    assert world.succeed(content(logs)) == [b"opens", *values]
    world.succeed(owner.close())


def test_an_owner_that_is_closed_stores_what_waits_for_the_window():
    """Its segment ends behind all of it."""
    world, logs, owner, writer = owned(**WINDOWS[0])
    values = told([bytes(20 * KIB)] * 40)
    done = [world.outcome(owner.append(value)) for value in values]
    assert writer.last_add_pushed < 40
    world.succeed(owner.close())
    assert [each.result().index for each in done] == list(range(1, 41))
    assert world.succeed(content(logs)) == [b"opens", *values]
    assert world.metadata(writer.id).is_closed
