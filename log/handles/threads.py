"""
The part of the blocking face of logs that is for ordinary threads, by the names of `loops`.

Knows: how a function is called with the news of a log.
Does not know: what there is to say about it.
"""

from collections.abc import Callable

from quire.client.threads import LedgerWatch, ReactorThread, Watched
from quire.log.api import LogInfo, Logs

# SPDX-License-Identifier: Apache-2.0


class WatchedLogs(Watched):
    """The logs of a cluster, watched by functions."""

    def __init__(self, thread: ReactorThread, logs: Logs) -> None:
        super().__init__(thread, logs.close)
        self._logs = logs

    def watch(self, name: str, fn: Callable[[LogInfo | None], object]) -> LedgerWatch:
        """
        Calls `fn` now and after changes, not after each; with None while there is no such log.  It is called on the
        reactor's thread, so it must not block or ask these logs.  `close` of the result ends the watch.
        """
        return LedgerWatch(self._thread, lambda: self._logs.watch(name, fn))
