"""
How far work on many ledgers is, as its user sees it: a bar, lines, or events.

Knows: the two halves of such a run (all ledgers are looked at, then some are dealt with), rates and time left.
Does not know: what is done to a ledger.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quire.tools.terminal import output

if TYPE_CHECKING:
    from quire.replication.core.progress import RunProgress
    from quire.replication.freeing.run import Failed

# SPDX-License-Identifier: Apache-2.0

TOLD_MAX = 20  # ledgers by name


class Shown(ExitStack):
    """Shows how far a run is: of the ledgers that are looked at, then of what is copied; or tells it in events."""

    def __init__(self, title: str, json_wanted: bool) -> None:
        super().__init__()
        self._title = title
        self._events = output.Events("progress") if json_wanted else None
        self._waiting = output.Events("waiting")
        self._told: dict[int, str] = {}  # which ledgers were waited for last, and why
        self._bar: output.ProgressBar | None = None
        self._copying = False
        self._earlier = 0  # what earlier rounds dealt with
        self._seen = 0  # ledgers of this round that were looked at
        self._looked_s: float | None = None  # how long looking at all ledgers took

    def waits(self, left: "Sequence[Failed]") -> None:
        """Shows ledgers that are left, for a reason that may pass."""
        if self._events is not None:
            rows = [{"ledger": each.ledger, "open": each.open, "reason": each.reason} for each in left]
            self._waiting.tell(lambda _elapsed: {"ledgers": rows})
            return
        told = {each.ledger: each.reason for each in left}
        new = [each for each in left if self._told.get(each.ledger) != each.reason]
        for each in new[:TOLD_MAX]:
            output.note(f"waits for ledger {each.ledger}: {each.reason}")
        if len(new) > TOLD_MAX:
            output.note(f"and for {len(new) - TOLD_MAX:,} ledgers more")
        self._told = told

    def __call__(self, now: "RunProgress") -> None:
        from quire.replication.freeing.run import LEDGER_BYTES

        if self._events is not None:
            ended = now.surveyed and now.ledgers_done == now.ledgers_to_do
            if self._looked_s is None and now.surveyed:
                self._looked_s = self._events.elapsed
            looked = self._looked_s or 0.0
            self._events.tell(lambda elapsed: event(now, elapsed, looked), last=ended)
            return
        copying = self._copying or (now.surveyed and now.ledgers_done < now.ledgers_to_do)
        if self._bar is None or copying is not self._copying:
            if self._bar is not None:
                self._bar.advance(now.ledgers_seen - self._bar.done)
            self.close()
            self._copying = copying
            title, unit = self._title, "ledgers"
            if not copying:
                title = f"{title}: looking at all ledgers"
            elif now.bytes_total > LEDGER_BYTES * now.ledgers_to_do:  # what takes more of the time
                unit = "bytes"
            self._bar = self.enter_context(output.ProgressBar(title, None, unit))
        bar = self._bar
        if not copying:
            done, total = now.ledgers_seen, now.ledgers_total
        elif bar.unit == "bytes":
            done, total = min(now.bytes, now.bytes_total), now.bytes_total
        else:
            done, total = now.ledgers_done, now.ledgers_to_do
        if copying and now.ledgers_seen < self._seen:  # the next round of a drain counts from the beginning
            self._earlier = bar.done
        self._seen = now.ledgers_seen
        bar.total = self._earlier + total
        bar.advance(self._earlier + done - bar.done)


def event(now: "RunProgress", seconds: float, looked: float) -> dict[str, Any]:
    """How far a run is, with rates and, once known, the seconds left; `looked`: seconds before the first ledger."""
    share = now.share
    left = (seconds - looked) * (1 - share) / share if now.surveyed and share else None
    return {
        **asdict(now),
        "ledgers_per_second": round(now.ledgers_done / seconds, 1),
        "bytes_per_second": round(now.bytes / seconds),
        "seconds_left": None if left is None else round(left, 1),
    }
