"""
The asyncio face of ledgers.

    async with connect("sqlite:///var/lib/quire/metadata.db") as bk:
        async with await bk.create_ledger() as writer:
            first = await writer.append(b"one")
        async with await bk.open_ledger(writer.id) as reader:
            async for entry in reader: ...

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: the protocol; every decision is the core's.

A batch hops between threads once: `append_many` and `read` as a whole, a streaming reader once per batch of entries,
and single appends that arrive together as one.

Cancelling a task cancels the operation it waits for, and what came of it all the same is ended; an append that was sent
stays sent.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial

from twisted.internet.defer import maybeDeferred

from quire.client import api
from quire.client.gathering import append_when_ready, gathering
from quire.client.known import KnownReader, KnownWriter
from quire.client.loops import (
    Connecting,
    Handle,
    ReactorThread,
    WatchedLedgers,
    all_answered,
    answered,
    appended,
    each,
    reactor_thread,
)
from quire.conf.client import ClientOptions, store_named
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import DigestType

# SPDX-License-Identifier: Apache-2.0


def connect(
    uri: str | None = None, options: ClientOptions | None = None, copies: api.Copies | None = None
) -> "Connecting[Client]":
    """
    Opens a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers", "sqlite:///var/lib/quire/metadata.db"); without
    one as the commands do, by QUIRE_METADATA or the client's configuration file.  Best used with `async with`, which
    closes the client.  `copies`: where ledgers are looked for that bookies no longer have.  `ValueError` for a URI of
    no known form, or none anywhere; `MetaStore` when the store can't be reached or holds no cluster.
    """
    chosen, named = ClientOptions.given(options), store_named(uri)

    async def opened() -> Client:
        thread = reactor_thread()
        client = await thread.wait(lambda: api.connect(thread.reactor, named, chosen, copies), api.Client.close)
        return Client(thread, client, chosen)

    return Connecting(opened)


class Client(WatchedLedgers):
    """
    A cluster's ledgers.  Made by `connect`.  `metrics` is a collector for Prometheus, whose scrapes may come in any
    thread.
    """

    def __init__(self, thread: ReactorThread, client: api.Client, options: ClientOptions) -> None:
        super().__init__(thread, client)
        self._options = options
        self.metrics = client.metrics

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
        """
        Creates a ledger, open for appending.  `ledger_id`: an id of your own (`LedgerExist` if taken).  `write_flags`:
        "DEFERRED_SYNC" acknowledges before the disk; `advanced`: entry ids are yours (`append_at`).
        `NotEnoughBookies`, `ValueError`.
        """
        writer = await self._thread.wait(
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
            api.Writer.shut_down,
        )
        return Writer(self._thread, writer, self._options)

    async def open_ledger(self, ledger_id: int, password: bytes = b"", recover: bool = True) -> "Reader":
        """
        Opens a ledger for reading.  With `recover` (the default) an unclosed one is fenced, recovered and closed first:
        its writer loses it.  Without, it is only looked at and may be followed with `tail`.  `NoSuchLedger`,
        `UnauthorizedAccess`.
        """
        reader = await self._thread.wait(
            lambda: self._client.open_ledger(ledger_id, password, recover), api.Reader.close
        )
        return Reader(self._thread, reader)

    async def delete_ledger(self, ledger_id: int) -> None:
        """Removes a ledger; bookies free its space later.  A missing one is success."""
        await self._thread.wait(lambda: self._client.delete_ledger(ledger_id))

    async def ledgers(self) -> AsyncIterator[int]:
        """Yields the ids of all ledgers, ascending, fetched page by page."""
        after = -1
        while True:
            page = await self._thread.wait(partial(self._client.ledger_ids, after, api.LEDGER_IDS_PER_PAGE))
            if not page:
                return
            for ledger in page:
                yield ledger
            after = page[-1]

    async def metadata(self, ledger_id: int) -> LedgerMetadata:
        """Reads what the cluster says about a ledger.  `NoSuchLedger`."""
        return await self._thread.wait(lambda: self._client.metadata(ledger_id))

    async def is_closed(self, ledger_id: int) -> bool:
        """True if the ledger has its end, as the store says now.  `NoSuchLedger`."""
        return await self._thread.wait(lambda: self._client.is_closed(ledger_id))

    async def disable_ensemble_change(self, on: bool = True) -> None:
        """
        Sets the option of that name at run time, for this client's writers and those to come: while bookies are
        restarted one after another, say, none is replaced; appends wait where the ack quorum is out of reach.
        """
        await self._thread.wait(partial(maybeDeferred, self._client.disable_ensemble_change, on))

    async def close(self) -> None:
        """Ends every connection; open writers and readers fail with `ClientClosed`.  Ledgers are not closed by this."""
        await super().close()


class Writer(Handle, KnownWriter):
    """The one writer of a new ledger.  Made by `Client.create_ledger`; `async with` closes the ledger."""

    def __init__(self, thread: ReactorThread, writer: api.Writer, options: ClientOptions) -> None:
        self._thread = thread
        self._writer = writer
        self._gathering = gathering(thread, writer, options)

    async def append(self, data: bytes) -> int:
        """Appends an entry: its id, once it is durable on `ack_quorum` bookies.  Concurrent ones travel as a batch."""
        return await answered(self._gathering, api.Writer.payload_of(data))

    async def append_many(self, entries: Iterable[bytes]) -> range:
        """Appends entries: their ids, once all are durable.  One batch: much cheaper than as many single appends."""
        payloads = api.Writer.payloads_of(entries)
        return await self._thread.wait(lambda: append_when_ready(self._writer, payloads))

    def append_async(self, data: bytes) -> "Future[int]":
        """
        Appends an entry whose id comes later.  Calls that come close together travel as one batch.
        Never waits: `append` does, while more than the options' window is under way.
        """
        return appended(self._gathering, api.Writer.payload_of(data))

    async def append_at(self, entry_id: int, data: bytes) -> int:
        """Appends to an advanced ledger under your own id; done once all below are, too.  `DuplicateEntryId`."""
        payload = api.Writer.payload_of(data)
        return await self._thread.wait(lambda: self._writer.append_at(entry_id, payload))

    async def force(self) -> None:
        """Makes everything acknowledged so far durable on every bookie of the ensemble, where the sync is deferred."""
        await self._thread.wait(self._writer.force)

    async def write_lac(self) -> None:
        """Stores the last add confirmed on the bookies, so that tailing readers see it without a further append."""
        await self._thread.wait(self._writer.write_lac)

    async def close(self) -> None:
        """Waits for what is under way, then closes the ledger for good; a writer that lost it writes nothing."""
        await all_answered(self._gathering)
        await self._thread.wait(self._writer.close)


class Reader(Handle, KnownReader):
    """A ledger open for reading.  Made by `Client.open_ledger`; `async for` gives every entry."""

    def __init__(self, thread: ReactorThread, reader: api.Reader) -> None:
        self._thread = thread
        self._reader = reader

    async def read(self, first: int, last: int) -> list[api.Entry]:
        """Reads entries first to last, both included.  Past the end: `Read`."""
        return await self._thread.wait(lambda: self._reader.read(first, last))

    async def read_unconfirmed(self, first: int, last: int) -> list[api.Entry]:
        """Reads past the last add confirmed, up to a close: such entries may yet come to nothing."""
        return await self._thread.wait(lambda: self._reader.read_unconfirmed(first, last))

    async def read_last_confirmed(self) -> int:
        """Asks the bookies for the last add confirmed."""
        return await self._thread.wait(self._reader.read_last_confirmed)

    async def try_read_last_confirmed(self) -> int:
        """
        Asks for the last add confirmed and takes the first answer with news, so also while too few bookies are up for
        certainty; without news, what is known here.  `LedgerRecovery` when no bookie answers.
        """
        return await self._thread.wait(self._reader.try_read_last_confirmed)

    async def read_last_entry(self) -> api.Entry:
        """Reads the last entry that is confirmed, looked up while the ledger is open.  `NoSuchEntry`."""
        return await self._thread.wait(self._reader.read_last_entry)

    def __aiter__(self) -> AsyncIterator[api.Entry]:
        """Yields every entry up to `last_entry_id`, fetched in batches."""
        return each(self._thread, self._reader.stream)

    def tail(self, timeout: float) -> AsyncIterator[api.Entry]:
        """Yields all entries, and those that come; ends after `timeout` seconds of silence, or at the close."""
        return each(self._thread, lambda: self._reader.tail(timeout))

    async def close(self) -> None:
        """Ends what is under way; the ledger stays as it is."""
        await self._thread.wait(self._reader.close)
