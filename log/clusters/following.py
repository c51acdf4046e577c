"""
Where a log went: what a handle that goes on there asks for, and the errors by which it learns that the log has left.

Knows: these errors; a name that only says where its log went on.  Does not know: directories, handles.
"""

from typing import NamedTuple, Protocol

from quire.log.api import Logs
from quire.log.core.manifest import decode_moved
from quire.log.core.values import Moved
from quire.log.store.paths import name_path
from quire.metadata.records import NoRecord, RecordChanged, Records
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogFenced, LogIsMirror, NoSuchLog, NotOwner

# SPDX-License-Identifier: Apache-2.0

HERE_NO_MORE = (NoSuchLog, LogIsMirror)  # what a handle meets where its log has left, or is about to
LOST = (*HERE_NO_MORE, LogFenced, NotOwner)  # and an owner, which is deposed first


class Located(NamedTuple):
    """The logs of the cluster that holds a log, its name, and the version of what says so, once that is settled."""

    cluster: str
    version: int
    logs: Logs


class Following(Protocol):
    """Says where a log went."""

    async def followed(self, name: str, before: Located, error: LedgerError) -> Located:
        """The cluster that holds a log which is not where it was; the error where it did not move."""
        ...

    async def prepare(self, moved: Moved) -> None:
        """Gets ready to go on in the cluster that a log is to go to."""
        ...


async def forget_moved(records: Records, name: str) -> None:
    """Frees a name that only says that its log went on in another cluster."""
    path = name_path(name)
    while True:
        try:
            data, version = await records.read(path)
            if decode_moved(data) is not None:
                await records.delete(path, version)
            return
        except NoRecord:
            return
        except RecordChanged:
            continue
