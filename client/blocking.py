"""
The blocking face: ledgers for scripts, notebooks and Spark, with ordinary calls from ordinary threads.

Knows: how to wait for the Twisted core (`api`) that runs on the background reactor.
Does not know: the protocol; every decision is the core's.

A batch hops between threads once: `append_many` and `read` as a whole, a streaming reader once per batch of entries,
and single appends that arrive together as one.  Handles may be used from several threads at a time.  A call from the
reactor's own thread raises `RuntimeError` instead of waiting for itself.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

from quire.client.api import LEDGER_IDS_PER_PAGE, Copies, Entry
from quire.client.api import Client as LedgerClient
from quire.client.api import Reader as LedgerReader
from quire.client.api import Writer as LedgerWriter
from quire.client.api import connect as open_cluster
from quire.client.background import ReactorThread, reactor_thread
from quire.client.gathering import append_when_ready, gathering, pulled
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Watch
from quire.protocol.digest import DigestType
from quire.protocol.errors import LedgerError

# SPDX-License-Identifier: Apache-2.0


def connect(uri: str, options: ClientOptions | None = None, copies: Copies | None = None) -> "Client":
    """
    Opens a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers", "sqlite:///var/lib/quire/metadata.db").  Best
    used in a `with` statement.  `copies`: where ledgers are looked for that bookies no longer have.  `ValueError` for a
    URI of no known form; `MetaStore` when the store can't be reached or holds no cluster.
    """
    thread = reactor_thread()
    chosen = ClientOptions.given(options)
    return Client(
        thread, thread.wait(lambda: open_cluster(thread.reactor, uri, chosen, copies), LedgerClient.close), chosen
    )


class Handle:
    """Something that `with` closes.  When its block failed, a failure to close does not hide that."""

    def close(self) -> None:
        raise AssertionError("every handle closes in its own way")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except (LedgerError, RuntimeError):
            if error is None:
                raise


class Client(Handle):
    """A cluster's ledgers.  Made by `connect`."""

    def __init__(self, thread: ReactorThread, client: LedgerClient, options: ClientOptions) -> None:
        self._thread = thread
        self._client = client
        self._options = options

    def create_ledger(
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
        A new ledger, open for appending.  `ledger_id`: an id of your own (`LedgerExist` if taken).  `write_flags`:
        "DEFERRED_SYNC" acknowledges before the disk; `advanced`: entry ids are yours (`append_at`).
        `NotEnoughBookies`, `ValueError`.
        """
        writer = self._thread.wait(
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

    def open_ledger(self, ledger_id: int, password: bytes = b"", recover: bool = True) -> "Reader":
        """
        A ledger, open for reading.  With `recover` (the default) an unclosed one is fenced, recovered and closed first:
        its writer loses it.  Without, it is only looked at and may be followed with `tail`.  `NoSuchLedger`,
        `UnauthorizedAccess`.
        """
        return Reader(
            self._thread,
            self._thread.wait(lambda: self._client.open_ledger(ledger_id, password, recover), LedgerReader.close),
        )

    def delete_ledger(self, ledger_id: int) -> None:
        """Removes a ledger; bookies free its space later.  A missing one is success."""
        self._thread.wait(lambda: self._client.delete_ledger(ledger_id))

    def ledgers(self) -> Iterator[int]:
        """The ids of all ledgers, ascending, fetched page by page."""
        after = -1
        while True:
            page = self._thread.wait(partial(self._client.ledger_ids, after, LEDGER_IDS_PER_PAGE))
            if not page:
                return
            yield from page
            after = page[-1]

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        """`NoSuchLedger`."""
        return self._thread.wait(lambda: self._client.metadata(ledger_id))

    def is_closed(self, ledger_id: int) -> bool:
        """Whether the ledger has its end, as the store says now.  `NoSuchLedger`."""
        return self._thread.wait(lambda: self._client.is_closed(ledger_id))

    def watch_ledger(self, ledger_id: int, fn: Callable[[LedgerMetadata | None], object]) -> "LedgerWatch":
        """
        Calls `fn` with the metadata now and after changes (not with every one in between), with None once the ledger is
        deleted or missing.  It is called on the reactor's thread, so it must not block or ask this client: hand on to a
        queue what takes longer.
        """

        async def begin() -> Watch:
            return self._client.watch_ledger(ledger_id, fn)

        return LedgerWatch(self._thread, self._thread.wait(begin, Watch.cancel))

    def disable_ensemble_change(self, on: bool = True) -> None:
        """
        The option of that name at run time, for this client's writers and those to come: while bookies are restarted
        one after another, say, none is replaced; appends wait where the ack quorum is out of reach.
        """

        async def switch() -> None:
            self._client.disable_ensemble_change(on)

        self._thread.wait(switch)

    def close(self) -> None:
        """Ends every connection; open writers and readers fail with `ClientClosed`.  Ledgers are not closed by this."""
        self._thread.wait(self._client.close)


class LedgerWatch(Handle):
    """Reports a ledger's metadata to a function; `close`, or the end of a `with` block, ends it."""

    def __init__(self, thread: ReactorThread, watch: Watch) -> None:
        self._thread = thread
        self._watch = watch

    def close(self) -> None:
        """After it has returned there are no more calls."""
        self._thread.wait(self._end)

    async def _end(self) -> None:
        self._watch.cancel()


class Writer(Handle):
    """The one writer of a new ledger.  Made by `Client.create_ledger`; `with` closes the ledger."""

    def __init__(self, thread: ReactorThread, writer: LedgerWriter, options: ClientOptions) -> None:
        self._thread = thread
        self._writer = writer
        self._gathering = gathering(thread, writer, options)

    @property
    def id(self) -> int:
        return self._writer.id

    @property
    def last_add_confirmed(self) -> int:
        """The highest id that is acknowledged, and all below it; -1: none."""
        return self._writer.last_add_confirmed

    @property
    def last_add_pushed(self) -> int:
        """The highest id handed out; -1: none."""
        return self._writer.last_add_pushed

    @property
    def length(self) -> int:
        """Payload bytes appended."""
        return self._writer.length

    @property
    def metadata(self) -> LedgerMetadata:
        return self._writer.metadata

    def append(self, data: bytes) -> int:
        """The entry's id, once it is durable on `ack_quorum` bookies."""
        self._thread.check_may_wait()
        return self.append_async(data).result()

    def append_many(self, entries: Iterable[bytes]) -> range:
        """Their ids, once all are durable.  One batch: much cheaper than as many single appends."""
        payloads = list(map(LedgerWriter.payload_of, entries))
        return self._thread.wait(lambda: append_when_ready(self._writer, payloads))

    def append_async(self, data: bytes) -> "Future[int]":
        """
        The id later.  Calls that come close together travel as one batch.  Waits for room while more than the options'
        window is under way.
        """
        return self._gathering.future(LedgerWriter.payload_of(data))

    def append_at(self, entry_id: int, data: bytes) -> int:
        """
        Advanced ledgers: appends under an id of your own; acknowledged once it and all below it are durable.
        `DuplicateEntryId`.
        """
        payload = LedgerWriter.payload_of(data)
        return self._thread.wait(lambda: self._writer.append_at(entry_id, payload))

    def force(self) -> None:
        """Deferred sync: makes everything acknowledged so far durable on every bookie of the ensemble."""
        self._thread.wait(self._writer.force)

    def write_lac(self) -> None:
        """Stores the last add confirmed on the bookies, so that tailing readers see it without a further append."""
        self._thread.wait(self._writer.write_lac)

    def close(self) -> None:
        """
        Waits for what is under way, then closes the ledger: its end is final.  A writer that lost its ledger writes
        nothing.
        """
        self._gathering.wait_idle()
        self._thread.wait(self._writer.close)


class Reader(Handle):
    """A ledger open for reading.  Made by `Client.open_ledger`; iterating streams every entry."""

    def __init__(self, thread: ReactorThread, reader: LedgerReader) -> None:
        self._thread = thread
        self._reader = reader

    @property
    def id(self) -> int:
        return self._reader.id

    @property
    def last_entry_id(self) -> int:
        """
        The last entry that may be read: the end of a closed ledger, else the last add confirmed that is known here.
        -1: none.
        """
        return self._reader.last_entry_id

    @property
    def length(self) -> int:
        """Payload bytes, as far as is known."""
        return self._reader.length

    @property
    def closed(self) -> bool:
        """Whether the ledger (not this handle) is closed."""
        return self._reader.closed

    def read(self, first: int, last: int) -> list[Entry]:
        """Entries first to last, both included.  Past the end: `Read`."""
        return self._thread.wait(lambda: self._reader.read(first, last))

    def read_unconfirmed(self, first: int, last: int) -> list[Entry]:
        """
        The same, also past the last add confirmed: such entries may yet come to nothing.  Stops at the end of a closed
        ledger.
        """
        return self._thread.wait(lambda: self._reader.read_unconfirmed(first, last))

    def read_last_confirmed(self) -> int:
        """Asks the bookies for the last add confirmed."""
        return self._thread.wait(self._reader.read_last_confirmed)

    def try_read_last_confirmed(self) -> int:
        """
        The same from the bookie that first answers with news, so also while too few bookies are up for certainty;
        without news, what is known here.  `LedgerRecovery` when no bookie answers.
        """
        return self._thread.wait(self._reader.try_read_last_confirmed)

    def read_last_entry(self) -> Entry:
        """
        The last entry that is confirmed, asked for again while the ledger is open.  `NoSuchEntry` when there is none.
        """
        return self._thread.wait(self._reader.read_last_entry)

    def __iter__(self) -> Iterator[Entry]:
        """Every entry up to `last_entry_id`; the next batch is fetched while this one is used."""
        return self._pull(self._reader.stream)

    def tail(self, timeout: float) -> Iterator[Entry]:
        """
        Every entry from the first on, and those that come; ends after `timeout` seconds of silence, or at the ledger's
        close.
        """
        return self._pull(lambda: self._reader.tail(timeout))

    def close(self) -> None:
        self._thread.wait(self._reader.close)

    def _pull(self, begin: Callable[[], AsyncIterator[list[Entry]]]) -> Iterator[Entry]:
        for batch in pulled(self._thread, begin):
            yield from batch
