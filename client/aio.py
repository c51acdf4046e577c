"""
The asyncio face: the same names as the blocking one with `async with`, `await` and `async for`.

    async with connect("sqlite:///var/lib/quire/metadata.db") as bk:
        async with await bk.create_ledger() as writer:
            first = await writer.append(b"one")
        async with await bk.open_ledger(writer.id) as reader:
            async for entry in reader: ...

Knows: how to carry results from the reactor's thread to an asyncio loop, once per batch.
Does not know: the protocol; every decision is the core's (`api`).

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended; an append that was sent
stays sent.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Self

from quire.client.api import LEDGER_IDS_PER_PAGE, Copies, Entry
from quire.client.api import Client as LedgerClient
from quire.client.api import Reader as LedgerReader
from quire.client.api import Writer as LedgerWriter
from quire.client.api import connect as open_cluster
from quire.client.background import ReactorThread, reactor_thread
from quire.client.gathering import append_when_ready, gathering
from quire.client.loops import Watches, appended, appended_when_room, end, pulled, wait, watched, when
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import DigestType
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


class Connecting:
    """What `connect` answers: `async with` it, or `await` it and close the client yourself."""

    def __init__(self, uri: str, options: ClientOptions | None, copies: Copies | None) -> None:
        self._uri = uri
        self._copies = copies
        self._options = ClientOptions.given(options)
        self._client: Client | None = None

    def __await__(self) -> Generator[object, None, "Client"]:
        return self._connect().__await__()

    async def __aenter__(self) -> "Client":
        self._client = await self._connect()
        return self._client

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)

    async def _connect(self) -> "Client":
        thread = reactor_thread()
        client = await wait(
            thread,
            lambda: open_cluster(thread.reactor, self._uri, self._options, self._copies),
            LedgerClient.close,
        )
        return Client(thread, client, self._options)


def connect(uri: str, options: ClientOptions | None = None, copies: Copies | None = None) -> Connecting:
    """
    Opens a cluster by its metadata URI.  `copies`: where ledgers are looked for that bookies no longer have.
    `ValueError` for a URI of no known form; `MetaStore` when the store can't be used.
    """
    return Connecting(uri, options, copies)


class Handle:
    """Something that `async with` closes.  When its block failed, a failure to close does not hide that."""

    async def close(self) -> None:
        raise AssertionError("every handle closes in its own way")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except (LedgerError, RuntimeError):
            if error is None:
                raise


class Client(Handle):
    """A cluster's ledgers; see `quire.client.blocking.Client` for each operation."""

    def __init__(self, thread: ReactorThread, client: LedgerClient, options: ClientOptions) -> None:
        self._thread = thread
        self._client = client
        self._options = options
        self._watches: Watches = set()

    async def create_ledger(
        self,
        *,
        ensemble_size: int = 3,
        write_quorum: int = 3,
        ack_quorum: int = 2,
        password: bytes = b"",
        digest: str | DigestType = "CRC32C",
        custom_metadata: Mapping[str, bytes] | None = None,
        ledger_id: int | None = None,
        write_flags: str | Iterable[str] = (),
        advanced: bool = False,
    ) -> "Writer":
        writer = await wait(
            self._thread,
            lambda: self._client.create_ledger(
                ensemble_size=ensemble_size,
                write_quorum=write_quorum,
                ack_quorum=ack_quorum,
                password=password,
                digest=digest,
                custom_metadata=custom_metadata,
                ledger_id=ledger_id,
                write_flags=write_flags,
                advanced=advanced,
            ),
            LedgerWriter.shut_down,
        )
        return Writer(self._thread, writer, self._options)

    async def open_ledger(self, ledger_id: int, password: bytes = b"", recover: bool = True) -> "Reader":
        return Reader(
            self._thread,
            await wait(
                self._thread, lambda: self._client.open_ledger(ledger_id, password, recover), LedgerReader.close
            ),
        )

    async def delete_ledger(self, ledger_id: int) -> None:
        await wait(self._thread, lambda: self._client.delete_ledger(ledger_id))

    async def ledgers(self) -> AsyncIterator[int]:
        """The ids of all ledgers, ascending, fetched page by page."""
        after = -1
        while True:
            page = await wait(self._thread, partial(self._client.ledger_ids, after, LEDGER_IDS_PER_PAGE))
            if not page:
                return
            for ledger in page:
                yield ledger
            after = page[-1]

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        return await wait(self._thread, lambda: self._client.metadata(ledger_id))

    async def is_closed(self, ledger_id: int) -> bool:
        return await wait(self._thread, lambda: self._client.is_closed(ledger_id))

    async def watch_ledger(self, ledger_id: int) -> AsyncIterator[LedgerMetadata | None]:
        """
        The metadata now and after changes (not every one in between), None once the ledger is deleted or missing.
        Leaving the loop ends the watch; the client's close ends the loop with `ClientClosed`.
        """
        begin = partial(self._client.watch_ledger, ledger_id)
        async with aclosing(watched(self._thread, begin, self._watches)) as news:
            async for metadata in news:
                yield metadata

    async def disable_ensemble_change(self, on: bool = True) -> None:
        async def switch() -> None:
            self._client.disable_ensemble_change(on)

        await wait(self._thread, switch)

    async def close(self) -> None:
        try:
            await wait(self._thread, self._client.close)
        finally:
            end(self._watches)


class Writer(Handle):
    """The one writer of a new ledger; see `quire.client.blocking.Writer`."""

    def __init__(self, thread: ReactorThread, writer: LedgerWriter, options: ClientOptions) -> None:
        self._thread = thread
        self._writer = writer
        self._gathering = gathering(thread, writer, options)

    @property
    def id(self) -> int:
        return self._writer.id

    @property
    def last_add_confirmed(self) -> int:
        return self._writer.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        return self._writer.last_add_pushed

    @property
    def length(self) -> int:
        return self._writer.length

    @property
    def metadata(self) -> LedgerMetadata:
        return self._writer.metadata

    async def append(self, data: bytes) -> int:
        """The entry's id, once it is durable.  Appends of tasks that run at the same time travel as one batch."""
        return await appended_when_room(self._gathering, LedgerWriter.payload_of(data))

    def append_async(self, data: bytes) -> "asyncio.Future[int]":
        """
        The id later.  Never waits: `append` does, when more than the options' window is under way.
        """
        return appended(self._gathering, LedgerWriter.payload_of(data))

    async def append_many(self, entries: Iterable[bytes]) -> range:
        payloads = list(map(LedgerWriter.payload_of, entries))
        return await wait(self._thread, lambda: append_when_ready(self._writer, payloads))

    async def append_at(self, entry_id: int, data: bytes) -> int:
        payload = LedgerWriter.payload_of(data)
        return await wait(self._thread, lambda: self._writer.append_at(entry_id, payload))

    async def force(self) -> None:
        await wait(self._thread, self._writer.force)

    async def write_lac(self) -> None:
        await wait(self._thread, self._writer.write_lac)

    async def close(self) -> None:
        await when(self._gathering.when_idle, self._gathering.forget)
        await wait(self._thread, self._writer.close)


class Reader(Handle):
    """A ledger open for reading; see `quire.client.blocking.Reader`."""

    def __init__(self, thread: ReactorThread, reader: LedgerReader) -> None:
        self._thread = thread
        self._reader = reader

    @property
    def id(self) -> int:
        return self._reader.id

    @property
    def last_entry_id(self) -> int:
        return self._reader.last_entry_id

    @property
    def length(self) -> int:
        return self._reader.length

    @property
    def closed(self) -> bool:
        return self._reader.closed

    async def read(self, first: int, last: int) -> list[Entry]:
        return await wait(self._thread, lambda: self._reader.read(first, last))

    async def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        return await wait(self._thread, lambda: self._reader.read_unconfirmed(first, last))

    async def read_last_confirmed(self) -> int:
        return await wait(self._thread, self._reader.read_last_confirmed)

    async def try_read_last_confirmed(self) -> int:
        return await wait(self._thread, self._reader.try_read_last_confirmed)

    async def read_last_entry(self) -> Entry:
        return await wait(self._thread, self._reader.read_last_entry)

    def __aiter__(self) -> AsyncIterator[Entry]:
        return self._pull(self._reader.stream)

    def tail(self, timeout: float) -> AsyncIterator[Entry]:
        return self._pull(lambda: self._reader.tail(timeout))

    async def close(self) -> None:
        await wait(self._thread, self._reader.close)

    async def _pull(self, begin: Callable[[], AsyncIterator[list[Entry]]]) -> AsyncIterator[Entry]:
        async with aclosing(pulled(self._thread, begin)) as batches:
            async for batch in batches:
                for entry in batch:
                    yield entry
