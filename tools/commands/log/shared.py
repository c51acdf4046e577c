"""
The name of a log, an open cluster, and records as text: common to all commands of logs.

Knows: how a name looks on a command line, columns, the keys of documents.  Does not know: any command.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from quire.tools.terminal import output
from quire.tools.terminal.options import Usage, client_options, group, metadata_uri
from quire.tools.terminal.running import with_client

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.log.api import LogInfo, Logs, Record
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

app = group(
    "Create, list, show, append to, read, follow, own, rename and delete named logs.",
    "quire log append orders --lines -f orders.txt",
)


def name_of(given: str) -> str:
    """The name that is meant: what is a percent-encoded name to the letter is decoded."""
    from quire.log.store.paths import decoded, encoded

    name = decoded(given)
    return name if "%" in given and encoded(name) == given else given


Name = Annotated[str, typer.Argument(metavar="NAME", help="the log's name, percent-encoded or not", callback=name_of)]


def with_logs(
    metadata: str | None,
    work: "Callable[[Logs], Awaitable[T]]",
    protocol: str | None = None,
    password: bytes = b"",
) -> T:
    """Runs `work(logs)` with the logs of the cluster, or the directory, at `metadata`; owners resign afterwards."""
    uri = metadata_uri(metadata)

    async def whole(reactor: "ProcessReactor", client: "Client") -> T:
        from quire.conf.log import LogOptions
        from quire.log.clusters.logs import logs_of
        from quire.pipeline.copies.reading import openers

        logs = logs_of(uri, client, LogOptions(password=password, openers=openers(reactor)))
        try:
            return await work(logs)
        finally:
            await logs.close()

    return with_client(uri.removeprefix("directory+"), whole, client_options(protocol))


def reactor_of(logs: "Logs") -> "ProcessReactor":
    return cast("ProcessReactor", logs.bk.reactor)


def as_document(info: "LogInfo") -> dict[str, Any]:
    """A log as JSON."""
    names = ("log", "name", "cluster", "uri", "start", "end")
    return info._asdict() | {"origins": [{name: getattr(each, name) for name in names} for each in info.origins]}


class RecordPrinter:
    """Writes records to standard output, a batch at a time."""

    def __init__(self, values: bool, json_wanted: bool) -> None:
        if values and json_wanted:
            raise Usage("--values and --json exclude each other")
        self._line = as_value if values else as_json if json_wanted else as_line
        self._out = sys.stdout.buffer

    def records(self, records: "Sequence[Record]", partition: int | None = None) -> None:
        """One a line; of a partitioned log with the partition."""
        self._out.write(b"".join([self._line(record, partition) for record in records]))
        self._out.flush()


def as_value(record: "Record", partition: int | None = None) -> bytes:
    """The value alone, with a line end if it has none."""
    return record.value if record.value.endswith(b"\n") else record.value + b"\n"


def as_line(record: "Record", partition: int | None = None) -> bytes:
    """Index, time, key and value, parted by tabs, behind the partition if there are some."""
    key = b"-" if record.key is None else record.key
    head = b"" if partition is None else b"%d\t" % partition
    return head + b"%d\t%s\t%s\t%s" % (record.index, time_text(record.stamp_ms).encode(), key, as_value(record))


def as_json(record: "Record", partition: int | None = None) -> bytes:
    """Makes a document of a record; key and value as text where they are UTF-8, else as `hex:…`."""
    document: dict[str, Any] = {
        "index": record.index,
        "at": record.at,
        "stamp_ms": record.stamp_ms,
        "key": record.key,
        "value": record.value,
        "time_ms": record.time_ms,
        "headers": [list(header) for header in record.headers],
    }
    if partition is not None:
        document = {"partition": partition} | document
    return output.as_json(document).encode() + b"\n"


def time_text(ms: int) -> str:
    """A stamp for people, in UTC."""
    return output.iso_time(ms).replace("+00:00", "Z")
