"""
The quota of an owner's log: what happens when its slowest cursor is too far behind.

Knows: when to look, and the three answers: appends fail, appends wait, the marks move.
Does not know: how appends fail or wait (`owner.appending.window`), how a backlog is measured and marks move (`marks`).
"""

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from quire.log.core.streams.retention import has_quota, over_quota
from quire.log.owner.appending.window import Window
from quire.log.store.context import LogContext
from quire.log.streams.marks import Slowest, drop, slowest_of
from quire.metadata.clock import Timer
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import BacklogQuota

# SPDX-License-Identifier: Apache-2.0

log = Logger()

LOOK_S = 10.0  # plus or minus a tenth
ABOVE_S = 1.0  # the same while appends fail or wait


class Quota:
    """Of one owner: it looks now and then from `begin` to `end`.  `end_of` is the end of what is acknowledged."""

    def __init__(self, context: LogContext, window: Window, end_of: Callable[[], tuple[int, int]]) -> None:
        self._context = context
        self._window = window
        self._end_of = end_of
        self._clock = context.client.reactor
        self._random: Random = context.client.random
        self._timer: Timer | None = None
        self._over = False

    def begin(self) -> None:
        """Looks now, and later again."""

        def failed(failure: Any) -> None:
            log.failure("a bug in the quota of the log {name}", failure, name=self._context.log.name)

        Deferred.fromCoroutine(self._rounds()).addErrback(failed)

    def end(self) -> None:
        """No more looks."""
        self._over = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()

    async def _rounds(self) -> None:
        wait_s = LOOK_S
        try:
            wait_s = LOOK_S if await self.look() is None else ABOVE_S
        except LedgerError as error:
            log.warn(
                "the quota of the log {name} could not be looked at: {error}",
                name=self._context.log.name,
                error=str(error),
            )
        finally:
            if not self._over:
                self._timer = self._clock.callLater(wait_s * self._random.uniform(0.9, 1.1), self.begin)

    async def look(self) -> Slowest | None:
        """The slowest cursor, if appends fail or wait for it.  The errors of reading; `MetaStore`."""
        context, window = self._context, self._window
        settings = {} if context.log.known is None else context.log.known.value.settings  # a log that is gone has none
        slowest = await slowest_of(context, self._end_of()) if has_quota(settings) else None
        over = "" if slowest is None else over_quota(settings, slowest.backlog)
        if slowest is None or not over:
            self._let_go()
            return None
        if settings["quota"] == "drop":
            self._let_go()
            index = await drop(context, settings, slowest.mark, self._end_of())
            log.warn(
                "cursors of the log {name} lose the records before index {index}: the slowest, {cursor}, is too far "
                "behind, by {over}",
                name=context.log.name,
                index=index,
                cursor=slowest.cursor,
                over=over,
            )
            return None
        refused = settings["quota"] == "refuse"
        window.refusal = BacklogQuota(
            f"the cursor {slowest.cursor!r} of the log {context.log.name!r} is too far behind, by {over}: this was not "
            f"sent; read on with the cursor, delete it, or `quire log set {context.log.name} quota=drop` moves it"
        )
        if not refused:
            window.refusal = None
        window.hold(not refused)
        return slowest

    def _let_go(self) -> None:
        self._window.refusal = None
        self._window.hold(False)
