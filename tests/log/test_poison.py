"""A bug in a step of a log's machines, or in an effect, ends the handle: whoever waits is told, and another goes on."""

import pytest
from twisted.internet.defer import Deferred

from quire.client.core.machine import Table
from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core import ownership, ownership_messages
from quire.log.core.machine import applying, applying_messages
from quire.log.machine.applier import Applier
from quire.log.owner.appending.sending import Sending
from quire.metadata.clock import pause
from quire.metadata.memory.store import MemoryStore
from quire.protocol.log_errors import AppendUnknown, LogError
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.machines import Chain
from tests.metadata import stored

# SPDX-License-Identifier: Apache-2.0

S, m, R, a = ownership.State, ownership_messages, applying.State, applying_messages


class Bug(RuntimeError):
    pass


class Story:
    """A log, and two processes."""

    def __init__(self):
        self.world = FakeCluster()
        self.logs = Logs(self.world.client(placement="random"), LogOptions())
        self.world.store = MemoryStore(self.world.clock, self.world.shared)
        self.other = Logs(self.world.client(placement="random"), LogOptions())
        self.world.succeed(self.logs.create("a"))

    def values(self):
        async def read():
            return [value async for batch in (await self.other.read("a")).batches() for value in batch.values]

        self.world.spin(1.0)  # an idle owner says what is confirmed
        return self.world.succeed(read())


def fails_in(monkeypatch, where, key):
    """The step that the table has there, or the method of the class, does what it is to do, and then fails."""
    row = where.rows[key] if isinstance(where, Table) else None
    real = row.step if row else getattr(where, key)

    def failing(*arguments):
        real(*arguments)
        raise Bug("on purpose")

    if row:
        monkeypatch.setitem(where.rows, key, row._replace(step=failing))
    else:
        monkeypatch.setattr(where, key, failing)


def test_a_ledger_that_is_being_made_when_an_owners_machine_fails(monkeypatch):
    """It is deleted as soon as it is there: nothing names it."""
    story = Story()
    world = story.world
    owner = world.succeed(story.logs.own("a"))
    fails_in(monkeypatch, ownership.TABLE, (S.OPENING, m.Append))
    made = []
    create = story.logs.bk.store.create_ledger

    async def created(ledger, metadata):
        await pause(world.clock, 0.01)
        made.append(ledger)
        return await create(ledger, metadata)

    monkeypatch.setattr(story.logs.bk.store, "create_ledger", lambda *given: Deferred.fromCoroutine(created(*given)))
    done = [world.outcome(owner.append(b"value")) for _ in range(2)]
    world.spin(0.005)
    assert {type(each.error) for each in done} == {LogError}
    assert made == []
    world.spin(1.0)
    assert len(made) == 1
    assert stored.Ledgers(world.shared).keys() == set()


@pytest.mark.parametrize(
    ("where", "key"),
    [(ownership.TABLE, (S.WRITING, m.Acked)), (Sending, "send")],
    ids=["step", "effect"],
)
def test_appends_that_are_sent_when_an_owners_machine_fails(monkeypatch, where, key):
    """They may be in the log, and nothing that the failed step began is done; another handle owns the log at once."""
    story = Story()
    world = story.world
    owner = world.succeed(story.logs.own("a"))
    world.succeed(owner.append(b"before"))
    lost = []
    owner.on_lost = lambda: lost.append(owner.lost)
    fails_in(monkeypatch, where, key)
    done = [world.outcome(owner.append(b"%d" % number)) for number in range(3)]
    waiting = world.outcome(owner.barrier())
    world.spin(0.1)
    assert {type(each.error) for each in done} <= {AppendUnknown, LogError}
    assert isinstance(done[0].error, AppendUnknown)
    assert isinstance(waiting.error, LogError)
    assert "a bug ended this owner of the log 'a'" in str(done[0].error)
    assert "Bug" in str(done[0].error) or "on purpose" in str(done[0].error)
    assert lost == [True]
    monkeypatch.undo()
    assert isinstance(world.fails(owner.append(b"refused")), LogError)
    world.succeed(owner.close())
    after = world.succeed(story.other.own("a", wait_s=0))
    end = world.succeed(after.append(b"after")).index
    assert story.values() == [*[b"before", b"0", b"1", b"2"][:end], b"after"]
    world.succeed(after.close())


def test_appends_that_were_never_sent_are_not_in_the_log(monkeypatch):
    """They fail so; a handle that is no owner yet fails likewise, and leaves no claim."""
    story = Story()
    world = story.world
    owner = world.succeed(story.logs.own("a"))
    fails_in(monkeypatch, ownership.TABLE, (S.OPENING, m.LedgerCreated))
    error = world.fails(owner.append(b"never"))
    assert isinstance(error, LogError)
    assert not isinstance(error, AppendUnknown)
    monkeypatch.undo()
    fails_in(monkeypatch, ownership.TABLE, (S.WAITING, m.ClaimMine))
    assert "a bug" in str(world.fails(story.logs.own("a")))
    monkeypatch.undo()
    after = world.succeed(story.other.own("a", wait_s=0))
    world.succeed(after.append(b"after"))
    assert story.values() == [b"after"]
    world.succeed(after.close())


@pytest.mark.parametrize(
    ("where", "key"),
    [(applying.TABLE, (R.LIVE, a.Own)), (applying.TABLE, (R.LIVE, a.Applied)), (Applier, "apply")],
    ids=["own", "applied", "effect"],
)
def test_a_replica_whose_machine_fails(monkeypatch, where, key):
    """What is proposed and read there is told; its state machine hears that it leads no more, and another one does."""
    story = Story()
    world = story.world
    roles = []

    class Hearing(Chain):
        def role(self, role, _epoch):
            roles.append(role)

    replica = world.succeed(story.logs.replica("a", Hearing, stand=True))
    assert world.succeed(replica.leads(30))
    world.succeed(replica.propose(b"one"))
    world.spin(1.0)
    fails_in(monkeypatch, where, key)
    done = [world.outcome(replica.propose(b"two")), world.outcome(replica.leads(1e6))]
    reading = world.outcome(replica.read(lambda machine: machine.applied))
    world.spin(1.0)
    assert done[0].done
    assert done[1].done
    assert reading.done
    monkeypatch.undo()
    assert "a bug" in str(replica.error)
    assert isinstance(world.fails(replica.propose(b"three")), LogError)
    assert roles[-1] is a.Role.FOLLOWING
    after = world.succeed(story.other.replica("a", Chain, stand=True))
    assert world.succeed(after.leads(30))
    world.succeed(after.propose(b"four"))
    assert story.values() in ([b"one", b"two", b"four"], [b"one", b"four"])
    world.succeed(replica.close())
    world.succeed(after.close())
