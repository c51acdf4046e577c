"""
The part of the asyncio face of logs that is asyncio's own, by the names of `threads`.

Knows: how a loop follows a log.
Does not know: what there is to say about it.
"""

from collections.abc import AsyncIterator
from functools import partial

from quire.client.loops import ReactorThread, Watched
from quire.log.api import LogInfo, Logs

# SPDX-License-Identifier: Apache-2.0


class WatchedLogs(Watched):
    """The logs of a cluster, watched in loops."""

    def __init__(self, thread: ReactorThread, logs: Logs) -> None:
        super().__init__(thread, logs.close)
        self._logs = logs

    def watch(self, name: str) -> AsyncIterator[LogInfo | None]:
        """
        Yields what the log is like now and after changes (not every one in between), None while there is no such log.
        Leaving the loop ends the watch; the close of the logs ends the loop with `ClientClosed`.
        """
        return self._news(partial(self._logs.watch, name))
