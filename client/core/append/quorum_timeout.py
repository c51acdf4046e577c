"""
How long an entry may wait for its ack quorum (protocol-rules.md 2.4, addEntryQuorumTimeoutSec).

Knows: what waited at each of the last two looks; a look comes every half time-out, so one alarm serves any number of
entries, and an entry is found late after one to one and a half time-outs.
Does not know: acknowledgements; the writer's machine says what is settled by now.
"""

from quire.client.core.append.messages import Alarm, Effect, SetAlarm

# SPDX-License-Identifier: Apache-2.0

Mark = int | frozenset[int]  # everything up to an id, or ids


class QuorumTimeout:
    """`waiting`: the alarm is set."""

    __slots__ = ("_last", "_last_but_one", "_ms_max", "waiting")

    def __init__(self, ms_max: int) -> None:
        self._ms_max = ms_max
        self._last: Mark = -1
        self._last_but_one: Mark = -1
        self.waiting = False

    def begin(self, now: Mark, effects: list[Effect]) -> None:
        """Something waits again."""
        self.waiting = True
        self._last_but_one, self._last = -1, now
        self.set_alarm(effects)

    def alarm_fired(self, now: Mark) -> Mark:
        """What waited a whole time-out ago.  `now`: what waits now."""
        overdue, self._last_but_one, self._last = self._last_but_one, self._last, now
        return overdue

    def set_alarm(self, effects: list[Effect]) -> None:
        effects.append(SetAlarm(Alarm.QUORUM, max(1, self._ms_max // 2)))
