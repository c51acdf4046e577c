"""
Performs what a machine that sends adds asks of channels and alarms, and turns what channels report into inputs.

Knows: channel numbers and the pool's channels behind them, alarms and the calls that ring them.
Does not know: what the machine decides.

Safety: effects are performed in the order they were returned, also when a callback of one of them feeds the machine
again; an exception out of the machine ends the handle before any caller sees more of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from twisted.logger import Logger

from quire.client.connections.pool import AddChannel, BookiePool, Incarnations
from quire.client.core.append import messages as m
from quire.client.core.machine import Driver, Fed, Performer, performs
from quire.metadata.clock import Clock, Timer
from quire.protocol.errors import OK, ClientClosed

# SPDX-License-Identifier: Apache-2.0

log = Logger()  # one of a writer costs as much as half an append

I = TypeVar("I")  # noqa: E741  # input
E = TypeVar("E")


class ChannelReports:
    """Takes the reports of one channel, and feeds them to the machine under the channel's number."""

    __slots__ = ("_bookie", "_failed", "_feed", "_number")

    def __init__(
        self, number: int, bookie: str, feed: Callable[[m.Reported], None], failed: Callable[[str, int], None]
    ) -> None:
        self._number = number
        self._bookie = bookie
        self._feed = feed
        self._failed = failed

    def acked(self, channel: AddChannel, first: int, count: int, code: int, /) -> None:
        if code == OK:
            self._feed(m.Acked(self._number, first, count))
        else:
            if code not in m.LEDGER_CODES:
                self._failed(self._bookie, code)
            self._feed(m.AddRefused(self._number, first, count, code))

    def failed(self, channel: AddChannel, code: int, reason: str, /) -> None:
        if code != ClientClosed.code:
            self._failed(self._bookie, code)
        self._feed(m.ChannelLost(self._number, code, reason))


class AddHandle(Performer, ABC, Generic[I, E]):
    """
    The base of a handle whose machine sends adds: performs its effects on channels and alarms, and has the driver.
    `suspect` is called with each bookie that failed, and how.  `incarnations`: those that the ledger's bookies had when
    they were named (D19).
    """

    at_once = frozenset((m.Refuse,))  # a caller that is refused now may have given an id that is acknowledged

    def __init__(
        self,
        machine: Fed[I | m.Reported, E],
        clock: Clock,
        pool: BookiePool,
        ledger: int,
        suspect: Callable[[str, int], None],
        secure: bool,
        incarnations: Mapping[str, str | None] | None = None,
    ) -> None:
        self._driver: Driver[I | m.Reported, E] = Driver(machine, self, self._machine_failed)
        self._incarnations: Incarnations = dict(incarnations or {})
        self._clock = clock
        self._pool = pool
        self._ledger = ledger
        self._suspect = suspect
        self._secure = secure
        self._channels: dict[int, AddChannel] = {}
        self._reader_waits: Callable[[str], object] | None = None  # called with a bookie that says so
        self._alarms: dict[m.Alarm, Timer] = {}

    def _machine_failed(self, error: BaseException) -> None:
        log.failure("the machine of ledger {ledger} failed", ledger=self._ledger)
        self._let_go()
        self._poisoned(f"a bug in the client, see the log: {error!r}")

    @abstractmethod
    def _poisoned(self, reason: str) -> None:
        """Ends the handle after a bug."""

    def _let_go(self) -> None:
        """Lets go of channels and alarms."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()
        alarms, self._alarms = self._alarms, {}
        for timer in alarms.values():
            timer.cancel()

    @performs(m.OpenChannel)
    def _open_channel(self, effect: m.OpenChannel) -> None:
        reports = ChannelReports(effect.channel, effect.bookie, self._driver.feed, self._suspect)
        channel = self._channels[effect.channel] = self._pool.add_channel(
            effect.bookie, self._ledger, reports, self._secure, self._incarnations
        )
        channel.reader_waits = self._reader_waits

    @performs(m.CloseChannel)
    def _close_channel(self, effect: m.CloseChannel) -> None:
        channel = self._channels.pop(effect.channel, None)
        if channel is None:
            return
        if effect.finish:
            self._pool.part(channel)
        else:
            channel.close()

    @performs(m.SendAdds)
    def _send_adds(self, effect: m.SendAdds) -> None:
        batch, entries = effect.batch, effect.entries
        channels = self._channels
        for number in effect.channels:
            if number in channels:
                channels[number].send(batch, entries)
        batch.release()

    @performs(m.SetAlarm)
    def _set_alarm(self, effect: m.SetAlarm) -> None:
        self._stop_alarm(m.StopAlarm(effect.alarm))
        self._alarms[effect.alarm] = self._clock.callLater(effect.wait_ms / 1000, self._alarm_fired, effect.alarm)

    @performs(m.StopAlarm)
    def _stop_alarm(self, effect: m.StopAlarm) -> None:
        timer = self._alarms.pop(effect.alarm, None)
        if timer is not None:
            timer.cancel()

    def _alarm_fired(self, alarm: m.Alarm) -> None:
        del self._alarms[alarm]
        self._driver.feed(m.AlarmFired(alarm))
