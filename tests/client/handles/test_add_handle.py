"""The driver of a machine that adds: order of effects, reports of channels, alarms, and a machine that fails."""

from typing import Any

from twisted.internet.task import Clock

from quire.client.core.append.messages import (
    Acked,
    AddRefused,
    Alarm,
    AlarmFired,
    ChannelLost,
    CloseChannel,
    OpenChannel,
    SendAdds,
    SetAlarm,
    StopAlarm,
)
from quire.client.core.machine import performs
from quire.client.handles.add_handle import AddHandle
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import ClientClosed

# SPDX-License-Identifier: Apache-2.0

FENCED, LOST, NO_ROOM = -101, -8, -12


def batch(first: int) -> AddBatch:
    return AddBatch(Digest(DigestType.CRC32C, b""), 7, first, -1, 0, [b"x"])


class Channel:
    def __init__(self, sink: Any) -> None:
        self.sink = sink
        self.sent: list[tuple[int, Any]] = []
        self.closed = False

    def send(self, adds: AddBatch, entries: Any = None) -> None:
        self.sent.append((adds.first, entries))

    def close(self) -> None:
        self.closed = True


class Pool:
    def __init__(self) -> None:
        self.opened: list[tuple[str, int, bool]] = []
        self.channels: list[Channel] = []
        self.parted: list[Channel] = []

    def add_channel(self, bookie: str, ledger: int, sink: Any, secure: bool = False, incarnations: Any = None) -> Any:
        self.opened.append((bookie, ledger, secure))
        self.channels.append(Channel(sink))
        return self.channels[-1]

    def part(self, channel: Any) -> None:
        self.parted.append(channel)


class Note(str):
    """An effect of the owner's."""


class Scripted:
    """A machine that answers each input with what the test has laid out for it, and notes what it was given."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers
        self.given: list[Any] = []

    def handle(self, given: Any) -> list[Any]:
        self.given.append(given)
        found = self.answers.get(given, []) if isinstance(given, str) else []
        if isinstance(found, Exception):
            raise found
        return found

    def poison(self) -> None:
        pass


class Scene(AddHandle[Any, Any]):
    """A handle with everything around it; `events` are its notes and its end, in order."""

    def __init__(self, secure: bool = False, **answers: Any) -> None:
        self.clock = Clock()
        self.pool = Pool()
        self.machine = Scripted(**answers)
        self.events: list[str] = []
        self.failed: list[tuple[str, int]] = []
        self.poisoned: list[str] = []
        self.on_note: Any = lambda note: None
        super().__init__(
            self.machine, self.clock, self.pool, 7, lambda bookie, code: self.failed.append((bookie, code)), secure
        )
        self.driver = self._driver
        self.driver.after = lambda: self.events.append("done")

    def _poisoned(self, reason: str) -> None:
        self.poisoned.append(reason)

    @performs(Note)
    def note(self, note: Note) -> None:
        self.events.append(str(note))
        self.on_note(note)


def test_effects_are_performed_in_order_also_when_one_feeds_the_machine():
    """What the inner input asked for comes after what was asked before it; `after` once everything is done."""
    scene = Scene(one=[Note("a"), Note("b")], two=[Note("c")])
    inside = []

    def feed_once(note: str) -> None:
        if note == "a":
            scene.driver.feed("two")
            inside.extend(scene.events)

    scene.on_note = feed_once
    scene.driver.feed("one")
    assert scene.machine.given == ["one", "two"]
    assert scene.events == ["a", "b", "c", "done"]
    assert inside == ["a"], "nothing is performed inside an effect"


def test_adds_go_to_the_channels_that_are_open():
    """A channel that the machine has closed gets nothing more; the batch's bytes are let go of after it was sent."""
    adds = batch(4)
    packed = adds.frames()
    assert adds.frames() is packed
    scene = Scene(
        open=[OpenChannel(1, 0, "b0"), OpenChannel(2, 1, "b1")],
        close=[CloseChannel(1)],
        send=[SendAdds(adds, (1, 2)), SendAdds(batch(5), (2,), [5])],
    )
    for given in ("open", "close", "send"):
        scene.driver.feed(given)
    assert scene.pool.opened == [("b0", 7, False), ("b1", 7, False)]
    first, second = scene.pool.channels
    assert (first.closed, first.sent) == (True, [])
    assert second.sent == [(4, None), (5, [5])]
    assert adds.frames() is not packed


def test_a_recovery_s_channels_are_secure():
    """They are opened so that a connection is used on which every request has a number."""
    scene = Scene(secure=True, open=[OpenChannel(1, 0, "b0")])
    scene.driver.feed("open")
    assert scene.pool.opened == [("b0", 7, True)]


def test_a_channel_that_may_finish_is_left_to_the_pool():
    """What it has queued still goes out; closing a channel twice is nothing."""
    scene = Scene(open=[OpenChannel(1, 0, "b0")], close=[CloseChannel(1, finish=True), CloseChannel(1)])
    scene.driver.feed("open")
    scene.driver.feed("close")
    assert scene.pool.parted == scene.pool.channels
    assert not scene.pool.channels[0].closed


def test_reports_are_inputs_under_the_channel_s_number():
    """Acknowledged, refused, lost: what each brings, and which bookies are said to have failed."""
    scene = Scene(open=[OpenChannel(5, 0, "b0"), OpenChannel(6, 1, "b1"), OpenChannel(7, 2, "b2")])
    scene.driver.feed("open")
    sinks = [channel.sink for channel in scene.pool.channels]
    sinks[0].acked(None, 3, 2, 0)
    sinks[0].acked(None, 5, 1, FENCED)
    assert scene.failed == [], "what the ledger's own state causes is no bookie's failure"
    sinks[0].acked(None, 6, 1, NO_ROOM)
    sinks[1].failed(None, LOST, "refused")
    assert scene.failed == [("b0", NO_ROOM), ("b1", LOST)]
    sinks[2].failed(None, ClientClosed.code, "closed")
    assert scene.failed == [("b0", NO_ROOM), ("b1", LOST)], "that the client is closed is no failure of the bookie"
    assert scene.machine.given[1:] == [
        Acked(5, 3, 2),
        AddRefused(5, 5, 1, FENCED),
        AddRefused(5, 6, 1, NO_ROOM),
        ChannelLost(6, LOST, "refused"),
        ChannelLost(7, ClientClosed.code, "closed"),
    ]


def test_an_alarm_rings_once_and_a_new_one_takes_its_place():
    """An alarm that is set again counts from then; one that is stopped is silent, and may be stopped again."""
    scene = Scene(set=[SetAlarm(Alarm.STALL, 500)], stop=[StopAlarm(Alarm.STALL)], other=[SetAlarm(Alarm.QUORUM, 800)])
    scene.driver.feed("set")
    scene.clock.advance(0.4)
    scene.driver.feed("set")
    scene.driver.feed("other")
    scene.clock.advance(0.4)
    assert AlarmFired(Alarm.STALL) not in scene.machine.given
    scene.clock.advance(0.1)
    assert scene.machine.given[-1] == AlarmFired(Alarm.STALL)
    scene.driver.feed("stop")
    scene.driver.feed("set")
    scene.driver.feed("stop")
    scene.clock.advance(5)
    assert scene.machine.given.count(AlarmFired(Alarm.STALL)) == 1
    assert scene.machine.given.count(AlarmFired(Alarm.QUORUM)) == 1


def test_a_machine_that_fails_ends_the_handle_before_more_is_done():
    """Channels and alarms are let go of, what was still to be done is not, and nothing is fed any more."""
    scene = Scene(
        open=[OpenChannel(1, 0, "b0"), SetAlarm(Alarm.STALL, 500)], one=[Note("a"), Note("b")], bad=ValueError("odd")
    )
    scene.driver.feed("open")
    scene.events.clear()
    scene.on_note = lambda note: scene.driver.feed("bad")
    scene.driver.feed("one")
    assert "b" not in scene.events
    assert scene.driver.dead
    assert scene.poisoned == ["a bug in the client, see the log: ValueError('odd')"]
    assert scene.pool.channels[0].closed
    assert scene.clock.getDelayedCalls() == []
    scene.driver.feed("open")
    assert scene.machine.given[-1] == "bad"


def test_an_effect_that_fails_ends_the_handle_too():
    """As a machine that fails does, and once."""
    scene = Scene(one=[Note("a"), Note("b")])
    scene.on_note = lambda note: 1 // 0
    scene.driver.feed("one")
    assert scene.events == ["a"]
    assert scene.driver.dead
    assert len(scene.poisoned) == 1
