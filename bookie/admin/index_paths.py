"""
The path of an index rebuild, over HTTP.  It is ours: BookKeeper knows no such thing of a running bookie.

    PUT /api/v1/bookie/rebuild_index    begins, and answers as GET; 409 while it is under way
    GET /api/v1/bookie/rebuild_index    {"running", "problem", "directories": [{"path", "logs", "logs_read", "entries",
                                        "taken_over", "limbo",
                                        "problems", "done"}]} of the last run since the start

Knows: that path.  Does not know: how it is done.
"""

from typing import Any, Protocol

from quire.bookie.admin.gate import Routes
from quire.bookie.admin.http import Answer, Asked, document

# SPDX-License-Identifier: Apache-2.0

PATH = "/api/v1/bookie/rebuild_index"


class Reindexing(Protocol):
    """As `IndexRebuild` does it."""

    def start(self) -> bool: ...

    def status(self) -> dict[str, Any]: ...


class IndexPaths:
    """Answers requests for the index of one bookie."""

    def __init__(self, reindex: Reindexing) -> None:
        self._reindex = reindex
        self.routes: Routes = {("GET", PATH): self._show, ("PUT", PATH): self._begin}

    def _show(self, asked: Asked) -> Answer:
        return document(self._reindex.status())

    def _begin(self, asked: Asked) -> Answer:
        if not self._reindex.start():
            return Answer(409, b"it is being rebuilt already, or the bookie stops\n")
        return self._show(asked)
