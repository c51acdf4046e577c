"""Every error of a log that can happen is provoked as a user meets it; its text names the thing and what to do next."""

import pytest
from twisted.internet.defer import Deferred

from quire.log.core import edits
from quire.log.core.batch import Records
from quire.log.core.frame import HEADER_BYTES
from quire.log.core.moving import BeginMove, EndMove
from quire.log.core.publishing import PARTS_MAX
from quire.log.core.values import Moved, Owner, Segment
from quire.log.mirror.mirror import Mirror
from quire.log.mirror.turning import promote
from quire.log.owner.appending.encoder import Encoder
from quire.log.streams import cursors
from quire.metadata.clock import pause
from quire.metadata.memory.cluster import Fault
from quire.protocol import log_errors
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import (
    AppendUnknown,
    ApplyFailed,
    BacklogQuota,
    BatchGap,
    LogDamaged,
    LogError,
    LogExists,
    LogFenced,
    LogFull,
    LogIsMirror,
    LogMoved,
    LogTerminated,
    LogTrimmed,
    MirrorDiverged,
    NoSuchCursor,
    NoSuchLog,
    NotOwner,
    PublishRefused,
    SegmentLost,
    SnapshotDamaged,
    StaleRead,
    UnknownFormat,
)
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.killed import kill
from tests.log.fakes.machines import Chain
from tests.log.fakes.provoked import TABLE, changed, changed_entry, lost_ledger, one_part, provokes, records_of
from tests.log.fakes.silent import silence
from tests.log.streams.test_retention import put_cursor
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

# -- logs ------------------------------------------------------------------------------------------------------------


@provokes(BacklogQuota, "'slow'", "quota_bytes is 0", "not sent", "quota=drop")
async def a_slow_cursor(_world, logs):
    """An append while a cursor is above the quota."""
    owner = await logs.own("a")
    await owner.append(b"x")
    await owner.close()
    await put_cursor(logs, "c", 0, name="slow")
    await logs.update("a", quota_bytes=0)
    owner = await logs.own("a")
    while owner.window.refusal is None:
        await pause(reactor, 0.01)
    await owner.append(b"y")


@provokes(NoSuchLog, "'b'", "quire log list")
async def _(world, logs):
    """a name that is not there"""
    await logs.info("b")


@provokes(NoSuchLog, "'a'", "quire log list")
async def _(world, logs):
    """a log that is being deleted, and has an owner"""
    owner = await logs.own("a")
    await owner.append(b"x")
    await (await world.logs()).delete("a")
    while True:
        await owner.append(b"y")


@provokes(NoSuchLog, "'a'", "quire log list")
async def _(world, logs):
    """a log that is being deleted while a candidate waits"""
    await logs.own("a")
    second = await world.logs()
    waiting = Deferred.fromCoroutine(second.own("a"))
    await logs.delete("a")
    await waiting


@provokes(LogExists, "'a'", "quire log show a")
async def _(world, logs):
    """a name that is taken"""
    await logs.create("a")


@provokes(LogExists, "'b'", "quire log show b")
async def _(world, logs):
    """a new name that is taken"""
    await logs.create("b")
    await logs.rename("a", "b")


@provokes(UnknownFormat, "'a'", "wonders", "newer quire", "use that one")
async def _(world, logs):
    """a need of a newer version"""
    await changed(logs, needs=('"needs":[]', '"needs":["wonders"]'))
    await logs.info("a")


@provokes(LogDamaged, "'a'", "state", "quire log check")
async def _(world, logs):
    """a manifest that contradicts itself"""
    await changed(logs, state=('"state":"open"', '"state":"ajar"'))
    await logs.info("a")


# -- owners ----------------------------------------------------------------------------------------------------------


@provokes(NotOwner, "'a'", "epoch 1", "here:1", "force", address="here:1")
async def _(world, logs):
    """another one owns the log"""
    await logs.own("a", address="here:1")
    await (await world.logs()).own("a", wait_s=0)


@provokes(NotOwner, "'a'", "own it again", "not sent")
async def _(world, logs):
    """a handle that was closed"""
    owner = await logs.own("a")
    await owner.close()
    await owner.append(b"x")


@provokes(NotOwner, "'a'", "not sent", "own the log again")
async def _(world, logs):
    """a handle that hands the log over"""
    owner = await logs.own("a")
    waiting = owner.append(b"x")
    owner.close()
    late = owner.append(b"y")
    await waiting
    await late


@provokes(LogFenced, "'a'", "epoch 2", "own it again")
async def _(world, logs):
    """another one owns the log now"""
    owner = await logs.own("a")
    await owner.append(b"x")
    second = await world.logs()
    await (await records_of(second)).edit(edits.Claim(Owner("other", 0)))
    while True:
        await owner.append(b"y")


@provokes(LogTerminated, "'a'", "index 0", "another", end=0)
async def _(world, logs):
    """a log that was terminated"""
    await changed(
        logs,
        state=('"state":"open"', '"state":"terminated"'),
        end=('"compacted":null', '"compacted":null,"end":0'),
    )
    await logs.own("a")


@provokes(LogTerminated, "'a'", "another")
async def _(world, logs):
    """a log that is terminated while a candidate waits"""
    await logs.own("a")
    second = await world.logs()
    waiting = Deferred.fromCoroutine(second.own("a"))
    await changed(
        logs,
        state=('"state":"open"', '"state":"terminated"'),
        end=('"compacted":null', '"compacted":null,"end":0'),
    )
    await waiting


@provokes(AppendUnknown, "'a'", "append_ms", "reading it tells")
async def _(world, logs):
    """the ledger's end can't be learned in time"""
    impatient = await world.logs(append_ms=300, takeover_ms=300)
    owner = await impatient.own("a")
    await owner.append(b"x")
    store = impatient.bk.store
    store.faults = lambda *_: Fault(error=MetaStore("away"))
    impatient.bk.pool.close()
    try:
        await owner.append(b"y")
    finally:
        store.faults = None


@provokes(SegmentLost, "'a'", "segment 0", "ledger", "quire log give-up a 0")
async def _(world, logs):
    """a takeover whose ledger is gone"""
    owner = await logs.own("a")
    await owner.append(b"x")
    kill(logs)
    second = await world.logs()
    await lost_ledger(second)
    await second.own("a", force=True)


# -- readers ---------------------------------------------------------------------------------------------------------


@provokes(SegmentLost, "'a'", "segment 0", "index 0", "quire log give-up a 0")
async def _(world, logs):
    """a reader whose ledger is gone"""
    owner = await logs.own("a")
    await owner.append(b"x")
    ledger = (await logs.info("a")).ledger
    await owner.close()
    await logs.bk.delete_ledger(ledger)
    await values(await logs.read("a"))


@provokes(UnknownFormat, "'a'", "ledger", "entry 0", "a newer one reads it")
async def _(world, logs):
    """an entry of a newer version"""
    ((entry,), _) = Encoder(Segment(0, 0, 0, 0, 0), 0, 1000, "none").encode(Records([b"x"]), 0)
    await changed_entry(logs, entry[:4] + b"\2" + entry[5:])
    await values(await logs.read("a"))


@provokes(NoSuchLog, "'a'", "quire log list")
async def _(world, logs):
    """a log that is being deleted while it is followed"""
    reader = await logs.read("a")
    await logs.delete("a")
    async for _batch in reader.tail(60):
        pass


@provokes(LogTrimmed, "'a'", "index 0", "begins at index 1", "read from 'begin'", begin=1)
async def _(world, logs):
    """an index that was trimmed"""
    owner = await logs.own("a")
    await owner.append_many([b"x", b"y"])
    await owner.close()
    await changed(logs, begin=('"begin":{"n":0,"index":0,"at":0}', '"begin":{"n":0,"index":1,"at":1}'))
    await values(await logs.read("a", 0))


@provokes(LogDamaged, "'a'", "ledger", "entry 0", "too few", "quire log check a")
async def _(world, logs):
    """an entry that is none of a log"""
    await changed_entry(logs, bytes(HEADER_BYTES - 1))
    await values(await logs.read("a"))


# -- publishers ------------------------------------------------------------------------------------------------------


@provokes(BatchGap, "batch 5", "'facts'", "next one is 0")
async def _(world, logs):
    """a batch that is not the next one"""
    await (await logs.sink("a", "facts", "r")).commit(5, [])


@provokes(PublishRefused, "batch 0", "'facts'", "new run")
async def _(world, logs):
    """a batch that was aborted"""
    sink = await logs.sink("a", "facts", "r")
    part = await one_part(logs, sink)
    await sink.abort(0)
    await sink.commit(0, [part])


@provokes(PublishRefused, "ledger", "part 0", "is gone", "run the part's task again")
async def _(world, logs):
    """a ledger of a part that is gone"""
    sink = await logs.sink("a", "facts", "r")
    part = await one_part(logs, sink)
    await logs.bk.delete_ledger(part.ledgers[0].ledger)
    await sink.commit(0, [part])


@provokes(PublishRefused, "ledger", "not closed at entry 8", "run the part's task again")
async def _(world, logs):
    """a ledger that is not what its part says"""
    sink = await logs.sink("a", "facts", "r")
    part = await one_part(logs, sink)
    await sink.commit(0, [part._replace(ledgers=(part.ledgers[0]._replace(entries=9),))])


@provokes(PublishRefused, "ledger", "says 7 of", "run the part's task again")
async def _(world, logs):
    """entries that are not what the part says"""
    sink = await logs.sink("a", "facts", "r")
    part = await one_part(logs, sink)
    wrong = part._replace(ledgers=(part.ledgers[0]._replace(records=7),))
    await sink.commit(0, [wrong], verify="entries")


@provokes(PublishRefused, "part 0", "twice", "one attempt of each")
async def _(world, logs):
    """two attempts of one part"""
    sink = await logs.sink("a", "facts", "r")
    await sink.commit(0, [await one_part(logs, sink), await one_part(logs, sink)])


@provokes(PublishRefused, "part 0", "batch 1", "run its task again")
async def _(world, logs):
    """a part of another batch"""
    sink = await logs.sink("a", "facts", "r")
    await sink.commit(0, [await one_part(logs, sink, batch=1)])


@provokes(PublishRefused, "'a'", "quire log set a publish=true")
async def _(world, logs):
    """a log that takes no published ledgers"""
    await logs.update("a", publish=False)
    sink = await logs.sink("a", "facts", "r")
    await sink.commit(0, [await one_part(logs, sink)])


@provokes(LogFenced, "run one", "'facts'", "run two", "end what runs in it")
async def _(world, logs):
    """a former run"""
    former = await logs.sink("a", "facts", "one")
    await former.commit(0, [])
    await (await logs.sink("a", "facts", "two")).commit(1, [])
    await former.commit(2, [])


@provokes(LogFenced, "intent", "'facts'", "end this task")
async def _(world, logs):
    """a task whose part was aborted"""
    sink = await logs.sink("a", "facts", "r")
    await logs.update("a", roll_bytes=1)
    part = await sink.part(0, 0, 0)
    await part.append_many([b"x"])
    await sink.abort(0)
    await part.append_many([b"y"])


@provokes(LogFull, str(PARTS_MAX), "write larger ones")
async def _(world, logs):
    """a batch of more parts than fit"""
    sink = await logs.sink("a", "facts", "r")
    part = await one_part(logs, sink)
    await sink.commit(0, [part] * (PARTS_MAX + 1))


@provokes(LogFull, "'a'", "quire log tidy a")
async def _(world, logs):
    """a manifest that is too large"""
    manifest = (await (await records_of(logs)).read()).value
    doomed = [edits.Doomed(number, "x" * 1000, 0) for number in range(800)]
    edits.encoded(edits.replace(manifest, doomed=tuple(doomed)))


# -- replicas ---------------------------------------------------------------------------------------------------------


async def leading(logs):
    """A replica that leads."""
    replica = await logs.replica("a", Chain, stand=True)
    assert await replica.leads(60)
    return replica


@provokes(ApplyFailed, "'a'", "ValueError at index 1", "quire log read a --from 1 --to 1", index=1)
async def _(world, logs):
    """a state machine that raises"""
    replica = await leading(logs)
    await replica.propose(b"good")
    await replica.propose(b"bad")


@provokes(LogError, "'a'", "ValueError at its role", "begin another one")
async def _(world, logs):
    """a state machine that raises when it is to lead"""

    class Shy(Chain):
        def role(self, role, epoch):
            raise ValueError("not me")

    replica = await logs.replica("a", Shy, stand=True)
    assert not await replica.leads(60)
    await replica.propose(b"x")


@provokes(SnapshotDamaged, "'a'", "begins at index 1", "index 1, ledger", "quire log snapshots a")
async def _(world, logs):
    """a log that was trimmed, and whose snapshot is gone"""
    await logs.update("a", roll_records=1)
    replica = await leading(logs)
    await replica.propose(b"x")
    await replica.snapshot()
    await replica.close()
    await logs.trim("a", 1)
    (snapshot,) = await logs.snapshots("a")
    await logs.bk.delete_ledger(snapshot.ledger)
    await logs.replica("a", Chain)


@provokes(StaleRead, "'a'", "1.0 s", "ask again", "raise read_ms")
async def _(world, logs):
    """a store that does not answer in time"""
    impatient = await world.logs(read_ms=1000)
    replica = await leading(impatient)
    store = impatient.bk.store
    store.faults = lambda *_: Fault(before=1.5)
    try:
        await replica.read(len)
    finally:
        store.faults = None


@provokes(StaleRead, "'a'", "0.3 s", "ask again", "raise read_ms")
async def _(world, logs):
    """an entry that its owner does not confirm"""
    slow = await world.logs(lac_ms=60_000)
    silence(slow)
    owner = await slow.own("a")
    impatient = await world.logs(read_ms=300)
    follower = await impatient.replica("a", Chain)
    await owner.append(b"x")
    await follower.read(len)


# -- cursors ----------------------------------------------------------------------------------------------------------


@provokes(NoSuchCursor, "'a'", "'billing'", "quire log cursors a")
async def _(world, logs):
    """a name that no cursor has"""
    await logs.cursor("a", "billing", create=False)


@provokes(NoSuchCursor, "'a'", "'billing'", "quire log cursors a")
async def _(world, logs):
    """a cursor that was deleted while it was read"""
    cursor = await logs.cursor("a", "billing")
    await (await world.logs()).delete_cursor("a", "billing")
    while True:
        await cursor.seek("begin")


@provokes(LogFull, "'a'", "2 cursors", "quire log cursor delete a CURSOR")
async def _(world, logs):
    """one cursor more than a log may have"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cursors, "CURSORS_MAX", 2)
        for name in ("one", "two", "three"):
            await logs.cursor("a", name)


# -- mirrors ----------------------------------------------------------------------------------------------------------


@provokes(LogIsMirror, "'b'", "a copy of 'a'", "quire log mirror b --promote", log_name="a")
async def _(world, logs):
    """an append to a copy"""
    await Mirror(logs, "a", logs, "b").begin()
    await (await world.logs()).own("b")


@provokes(LogMoved, "'a'", "the cluster eu", "directory+memory://home", cluster="eu", uri="memory://eu")
async def _(world, logs):
    """a log that went to another cluster"""
    mirror = Mirror(logs, "a", logs, "b")
    await mirror.begin()
    await mirror.fence()
    context = await logs.context("a")
    moved = Moved("0" * 16, "eu", "memory://eu", "memory://home")
    await context.log.edit(BeginMove(moved, (await logs.info("b")).id))
    await context.log.edit(EndMove("0" * 16))
    await mirror.close()
    await logs.own("a")


@provokes(MirrorDiverged, "'a'", "records 0 to 0", "--set-aside", first=0, end=1)
async def _(world, logs):
    """the way back of a log that has a record which its copy never got"""
    mirror = Mirror(logs, "a", logs, "b")
    await mirror.begin()
    await mirror.close()
    await promote(logs, "b")
    owner = await logs.own("a")
    await owner.append(b"x")
    await owner.close()
    await Mirror(logs, "b", logs, "a", fail_back=True).begin()


# -- the table -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("story", "error", "said", "attributes"), TABLE)
def test_an_error_says_what_and_what_next(tmp_path, story, error, said, attributes):
    """Its kind is the one that is documented; its text names the thing and the next step."""

    async def whole():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            with pytest.raises(error) as raised:
                await story(world, logs)
            return raised.value

    found = run(whole)
    assert type(found) is error
    missing = [words for words in said if words not in str(found)]
    assert not missing, f"{missing} in: {found}"
    assert {name: getattr(found, name) for name in attributes} == attributes


def test_every_error_of_a_log_is_provoked():
    """Each of the tree, and the base, which an ended replica raises."""
    known = {name for name, kind in vars(log_errors).items() if isinstance(kind, type) and issubclass(kind, LogError)}
    assert {each.values[1].__name__ for each in TABLE} == known
