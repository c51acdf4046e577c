"""What an owner sends goes by the window of its ledger's writer, whatever that is."""

import pytest

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.batch import Records
from quire.log.core.ownership_messages import UNSENT
from quire.log.owner.appending.appends import Batch, Call
from quire.log.owner.appending.encoder import Encoder
from quire.log.owner.appending.sending import SENT_BYTES, Sending
from quire.log.owner.handle import ENTRIES_UNDER_WAY_MAX
from quire.log.owner.lease import OwnerLease
from quire.metadata.clock import pause
from quire.metadata.store import Watch
from quire.protocol.log_errors import LogFenced, NotOwner
from tests.client.fakes.cluster import FakeChannel, FakeCluster

# SPDX-License-Identifier: Apache-2.0

KIB = 1 << 10
WINDOWS = [
    {"window_bytes_max": 10 * KIB, "batch_bytes_max": 2 * KIB},
    {"window_entries_max": 3},
    {"replica_backlog_bytes_max": 10 * KIB},
]


def owned(told_of_ledgers=True, **window):
    """A log that is owned, with a segment, by a client with such windows; the writer of its ledger."""
    world, writers = FakeCluster(), []
    client = world.client(placement="random", **window)
    if not told_of_ledgers:
        client.watch_ledger = lambda _ledger, _told: Watch(lambda: None)
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


def ended_by_a_publisher(monkeypatch, leaves=False):
    """
    An owner that has sent, and more that waits, when a publisher ends its segment.  The manifest tells it, the ledger
    does not yet; what the bookies answered to what was sent comes only then, and makes room in the writer's window.
    """
    world, logs, owner, writer = owned(told_of_ledgers=False, window_entries_max=3, batch_bytes_max=64 * KIB)
    other = Logs(world.client(placement="random"), LogOptions())
    sink = world.succeed(other.sink("a", "facts", "run"))
    part = world.succeed(closed_part(sink))
    resigned, answer, late = OwnerLease.resigned, FakeChannel.answer, []

    async def resigned_late(*arguments):
        await pause(world.clock, 1)
        return await resigned(*arguments)

    def answer_late(channel, entry, code):
        if channel.pool is world.pools[0]:
            late.append((channel, entry, code))
        else:
            answer(channel, entry, code)

    monkeypatch.setattr(OwnerLease, "resigned", resigned_late)
    monkeypatch.setattr(FakeChannel, "answer", answer_late)
    values = told([bytes(200 * KIB)] * 20)
    done = [world.outcome(owner.append(value)) for value in values]
    world.spin(0.01)
    if leaves:
        done.append(world.outcome(owner.close()))
    world.succeed(sink.commit(0, [part]))
    pushed = writer.last_add_pushed
    monkeypatch.undo()
    world.judge = lambda request: "hold" if request.op == "add" else "pass"
    for channel, entry, code in late:
        channel.answer(entry, code)
    world.spin(0.01)
    assert 1 <= writer.last_add_confirmed < pushed < 10
    assert writer.last_add_pushed == pushed
    world.judge = lambda _request: "pass"
    return world, logs, owner, values, done


async def closed_part(sink):
    part = await sink.part(0, 0, 0)
    await part.append_many([b"published"])
    return await part.close()


def test_what_waits_for_the_window_when_a_publisher_ends_the_segment(monkeypatch):
    """Nothing more goes to its ledger; what waited goes to the next segment, once."""
    world, logs, owner, values, done = ended_by_a_publisher(monkeypatch)
    stored = sum(each.done for each in done)
    world.let_go()
    world.spin(20)
    assert [each.result().index for each in done] == [*range(1, stored + 1), *range(stored + 2, 22)]
    assert world.succeed(content(logs)) == [b"opens", *values[:stored], b"published", *values[stored:]]
    world.succeed(owner.close())


def test_what_waits_for_the_window_of_an_owner_that_leaves_when_a_publisher_ends_the_segment(monkeypatch):
    """It fails as not in the log, and counts as under way no more, once."""
    world, logs, owner, values, done = ended_by_a_publisher(monkeypatch, leaves=True)
    world.let_go()
    world.spin(20)
    stored = sum(each.code == 0 for each in done[:-1])
    assert 1 <= stored < 10
    assert {type(each.error) for each in done[stored:-1]} == {LogFenced, NotOwner}  # sent in vain, or never
    assert world.succeed(content(logs)) == [b"opens", *values[:stored], b"published"]
    assert owner.under_way == (0, 0)


def test_a_stop_while_a_batch_is_encoded(monkeypatch):
    """As when who is refused there ends the owner: the batch is not sent, and nothing says that it was."""
    world, _logs, owner, writer = owned()
    send, encode, taken, pushed = Sending.send, Encoder.encode, [], writer.last_add_pushed

    def send_and_stop(sending, items):
        def encode_and_stop(encoder, *arguments):
            sending.stop()
            return encode(encoder, *arguments)

        monkeypatch.setattr(Encoder, "encode", encode_and_stop)
        taken.extend(items)
        send(sending, items)

    monkeypatch.setattr(Sending, "send", send_and_stop)
    world.outcome(owner.append(b"value"))
    world.spin(0.1)
    assert writer.last_add_pushed == pushed
    assert [each.last for each in taken] == [UNSENT]


def test_a_stop_behind_batches_that_are_encoded_and_not_handed_over(monkeypatch):
    """They are not sent, and so they do not count as what may be stored; what the writer has does."""
    world, _logs, owner, _writer = owned()
    send, encode, taken = Sending.send, Encoder.encode, []
    values = [b"x" * SENT_BYTES, b"2", b"3"]

    def send_and_stop(sending, _items):
        def encode_and_stop(encoder, *arguments):
            if len(encoded := [each for each in taken if each.last != UNSENT]) == 2:
                assert encoded == taken[:2]
                sending.stop()
            return encode(encoder, *arguments)

        monkeypatch.setattr(Encoder, "encode", encode_and_stop)
        taken.extend(Batch(Records([value]), [(Call(1, True, 9.0), 1)]) for value in values)
        send(sending, taken)

    monkeypatch.setattr(Sending, "send", send_and_stop)
    world.outcome(owner.append(b"value"))
    world.spin(0.1)
    assert [each.last == UNSENT for each in taken] == [False, True, True]
