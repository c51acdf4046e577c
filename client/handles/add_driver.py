"""
Drives a machine that sends adds: performs its effects in order, and turns what channels report into inputs.

Knows: channel numbers and the pool's channels behind them, alarms and the calls that ring them.
Does not know: what the machine decides.

Safety: effects are performed in the order they were returned, also when a callback of one of them feeds the machine
again; an exception out of the machine ends the handle before any caller sees more of it.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from twisted.logger import Logger

from quire.client.connections.pool import AddChannel, AddSink, Incarnations
from quire.client.core.append.messages import (
    LEDGER_CODES,
    Acked,
    AddRefused,
    Alarm,
    AlarmFired,
    ChannelLost,
    CloseChannel,
    OpenChannel,
    Refuse,
    SendAdds,
    SetAlarm,
    StopAlarm,
)
from quire.metadata.clock import Clock, Timer
from quire.protocol.errors import OK, ClientClosed

# SPDX-License-Identifier: Apache-2.0


class AddPool(Protocol):
    """What a writer needs of a `BookiePool`."""

    def add_channel(
        self,
        bookie: str,
        ledger: int,
        sink: AddSink,
        secure: bool = False,
        incarnations: Incarnations | None = None,
    ) -> AddChannel: ...
    def part(self, channel: AddChannel) -> None: ...


class Machine(Protocol):
    def handle(self, given: Any) -> list[Any]: ...


class ChannelReports:
    """Takes the reports of one channel, and feeds them to the machine under the channel's number."""

    __slots__ = ("_bookie", "_failed", "_feed", "_number")

    def __init__(
        self, number: int, bookie: str, feed: Callable[[Any], None], failed: Callable[[str, int], None]
    ) -> None:
        self._number = number
        self._bookie = bookie
        self._feed = feed
        self._failed = failed

    def acked(self, channel: AddChannel, first: int, count: int, code: int, /) -> None:
        if code == OK:
            self._feed(Acked(self._number, first, count))
        else:
            if code not in LEDGER_CODES:
                self._failed(self._bookie, code)
            self._feed(AddRefused(self._number, first, count, code))

    def failed(self, channel: AddChannel, code: int, reason: str, /) -> None:
        if code != ClientClosed.code:
            self._failed(self._bookie, code)
        self._feed(ChannelLost(self._number, code, reason))


class AddDriver:
    """
    Feeds a machine and performs its effects.  `perform`: the owner's part of them by type; `poisoned` is called once,
    when the machine failed; `failed` with each bookie that did, and how; `after` whenever a round of effects is done.
    `incarnations`: those that the ledger's bookies had when they were named (D19).
    """

    def __init__(
        self,
        clock: Clock,
        pool: AddPool,
        ledger: int,
        machine: Machine,
        perform: dict[type, Callable[[Any], None]],
        poisoned: Callable[[str], None],
        failed: Callable[[str, int], None],
        secure: bool,
        after: Callable[[], None] = lambda: None,
        incarnations: Mapping[str, str | None] | None = None,
    ) -> None:
        self.incarnations: Incarnations = dict(incarnations or {})
        self._clock = clock
        self._pool = pool
        self._ledger = ledger
        self._machine = machine
        self._poisoned = poisoned
        self._failed = failed
        self._secure = secure
        self._after = after
        self._channels: dict[int, AddChannel] = {}
        self._alarms: dict[Alarm, Timer] = {}
        self._effects: deque[Any] = deque()
        self._performing = False
        self.dead = False  # the machine failed: nothing is fed or performed any more
        self._log = Logger()
        self._perform: dict[type, Callable[[Any], None]] = {
            OpenChannel: self._open,
            CloseChannel: self._close,
            SendAdds: self._send,
            SetAlarm: self._set_alarm,
            StopAlarm: self._stop_alarm,
            **perform,
        }

    def feed(self, given: Any) -> None:
        """
        One input; its effects are performed before this returns, unless it came from inside an effect: then right after
        that.
        """
        if self.dead:
            return
        try:
            effects = self._machine.handle(given)
        except Exception as error:
            # The machine has poisoned itself; the handle ends here, so that nothing goes on half done.
            self._poison(error)
            return
        if not effects:  # of three answers to an add, two
            return
        todo = self._effects
        if self._performing and type(effects[0]) is Refuse:  # at once: who is answered right now may append under an id
            self._perform[Refuse](effects[0])  # that is acknowledged
            return
        todo += effects
        if self._performing:
            return
        self._performing = True
        try:
            while todo:
                effect = todo.popleft()
                self._perform[type(effect)](effect)
                if not todo:
                    self._after()
        except Exception as error:
            self._poison(error)
        finally:
            self._performing = False

    def _poison(self, error: Exception) -> None:
        self.dead = True
        self._effects.clear()
        self._log.failure("the machine of ledger {ledger} failed", ledger=self._ledger)
        self.release()
        self._poisoned(f"a bug in the client, see the log: {error!r}")

    def release(self) -> None:
        """Lets go of channels and alarms."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()
        alarms, self._alarms = self._alarms, {}
        for timer in alarms.values():
            timer.cancel()

    def _open(self, effect: OpenChannel) -> None:
        reports = ChannelReports(effect.channel, effect.bookie, self.feed, self._failed)
        self._channels[effect.channel] = self._pool.add_channel(
            effect.bookie, self._ledger, reports, self._secure, self.incarnations
        )

    def _close(self, effect: CloseChannel) -> None:
        channel = self._channels.pop(effect.channel, None)
        if channel is None:
            return
        if effect.finish:
            self._pool.part(channel)
        else:
            channel.close()

    def _send(self, effect: SendAdds) -> None:
        batch, entries = effect.batch, effect.entries
        for number in effect.channels:
            channel = self._channels.get(number)
            if channel is not None:
                channel.send(batch, entries)
        batch.release()

    def _set_alarm(self, effect: SetAlarm) -> None:
        self._stop_alarm(StopAlarm(effect.alarm))
        self._alarms[effect.alarm] = self._clock.callLater(effect.wait_ms / 1000, self._alarm_fired, effect.alarm)

    def _stop_alarm(self, effect: StopAlarm) -> None:
        timer = self._alarms.pop(effect.alarm, None)
        if timer is not None:
            timer.cancel()

    def _alarm_fired(self, alarm: Alarm) -> None:
        del self._alarms[alarm]
        self.feed(AlarmFired(alarm))
