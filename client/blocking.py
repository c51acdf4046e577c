# Made from client/aio.py by `make manual`: edit that file, not this one.
"""
The blocking face of ledgers.

    with connect("sqlite:///var/lib/quire/metadata.db") as bk:
        with bk.create_ledger() as writer:
            first = writer.append(b"one")
        with bk.open_ledger(writer.id) as reader:
            for entry in reader: ...

Knows: how to carry results from the Twisted core (`api`), on the background reactor, to the code that waits for them.
Does not know: the protocol; every decision is the core's.

A batch hops between threads once: `append_many` and `read` as a whole, a streaming reader once per batch of entries,
and single appends that arrive together as one.

Handles may be used from several threads at a time.  An interrupt while a call waits cancels its operation; an append
that was sent stays sent.  A call on the reactor's own thread, or in a forked child, raises `RuntimeError` instead of
waiting for ever.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial

from twisted.internet.defer import maybeDeferred

from quire.client import aio, api
from quire.client.gathering import append_when_ready, gathering
from quire.client.known import KnownReader, KnownWriter
from quire.client.threads import (
    Handle,
    ReactorThread,
    WatchedLedgers,
    all_answered,
    answered,
    appended,
    documented,
    each,
    reactor_thread,
)
from quire.conf.client import ClientOptions, store_named
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.digest import DigestType

# SPDX-License-Identifier: Apache-2.0


def connect(uri: str | None = None, options: ClientOptions | None = None, copies: api.Copies | None = None) -> "Client":
    """
    Opens a cluster by its metadata URI ("zk://127.0.0.1:2181/ledgers", "sqlite:///var/lib/quire/metadata.db"); without
    one as the commands do, by QUIRE_METADATA or the client's configuration file.  Best used with `with`, which
    closes the client.  `copies`: where ledgers are looked for that bookies no longer have.  `ValueError` for a URI of
    no known form, or none anywhere; `MetaStore` when the store can't be reached or holds no cluster.
    """
    chosen, named = ClientOptions.given(options), store_named(uri)

    def opened() -> Client:
        thread = reactor_thread()
        client = thread.wait(lambda: api.connect(thread.reactor, named, chosen, copies), api.Client.close)
        return Client(thread, client, chosen)

    return opened()


@documented(aio.Client)
class Client(WatchedLedgers):
    """
    A cluster's ledgers.  Made by `connect`.  `metrics` is a collector for Prometheus, whose scrapes may come in any
    thread.
    """

    def __init__(self, thread: ReactorThread, client: api.Client, options: ClientOptions) -> None:
        super().__init__(thread, client)
        self._options = options
        self.metrics = client.metrics

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
            api.Writer.shut_down,
        )
        return Writer(self._thread, writer, self._options)

    def open_ledger(self, ledger_id: int, password: bytes = b"", recover: bool = True) -> "Reader":
        reader = self._thread.wait(lambda: self._client.open_ledger(ledger_id, password, recover), api.Reader.close)
        return Reader(self._thread, reader)

    def delete_ledger(self, ledger_id: int) -> None:
        self._thread.wait(lambda: self._client.delete_ledger(ledger_id))

    def ledgers(self) -> Iterator[int]:
        after = -1
        while True:
            page = self._thread.wait(partial(self._client.ledger_ids, after, api.LEDGER_IDS_PER_PAGE))
            if not page:
                return
            yield from page
            after = page[-1]

    def metadata(self, ledger_id: int) -> LedgerMetadata:
        return self._thread.wait(lambda: self._client.metadata(ledger_id))

    def is_closed(self, ledger_id: int) -> bool:
        return self._thread.wait(lambda: self._client.is_closed(ledger_id))

    def disable_ensemble_change(self, on: bool = True) -> None:
        self._thread.wait(partial(maybeDeferred, self._client.disable_ensemble_change, on))

    def close(self) -> None:
        super().close()


@documented(aio.Writer)
class Writer(Handle, KnownWriter):
    """The one writer of a new ledger.  Made by `Client.create_ledger`; `with` closes the ledger."""

    def __init__(self, thread: ReactorThread, writer: api.Writer, options: ClientOptions) -> None:
        self._thread = thread
        self._writer = writer
        self._gathering = gathering(thread, writer, options)

    def append(self, data: bytes) -> int:
        return answered(self._gathering, api.Writer.payload_of(data))

    def append_many(self, entries: Iterable[bytes]) -> range:
        payloads = api.Writer.payloads_of(entries)
        return self._thread.wait(lambda: append_when_ready(self._writer, payloads))

    def append_async(self, data: bytes) -> "Future[int]":
        return appended(self._gathering, api.Writer.payload_of(data))

    def append_at(self, entry_id: int, data: bytes) -> int:
        payload = api.Writer.payload_of(data)
        return self._thread.wait(lambda: self._writer.append_at(entry_id, payload))

    def force(self) -> None:
        self._thread.wait(self._writer.force)

    def write_lac(self) -> None:
        self._thread.wait(self._writer.write_lac)

    def close(self) -> None:
        all_answered(self._gathering)
        self._thread.wait(self._writer.close)


@documented(aio.Reader)
class Reader(Handle, KnownReader):
    """A ledger open for reading.  Made by `Client.open_ledger`; `for` gives every entry."""

    def __init__(self, thread: ReactorThread, reader: api.Reader) -> None:
        self._thread = thread
        self._reader = reader

    def read(self, first: int, last: int) -> list[api.Entry]:
        return self._thread.wait(lambda: self._reader.read(first, last))

    def read_unconfirmed(self, first: int, last: int) -> list[api.Entry]:
        return self._thread.wait(lambda: self._reader.read_unconfirmed(first, last))

    def read_last_confirmed(self) -> int:
        return self._thread.wait(self._reader.read_last_confirmed)

    def try_read_last_confirmed(self) -> int:
        return self._thread.wait(self._reader.try_read_last_confirmed)

    def read_last_entry(self) -> api.Entry:
        return self._thread.wait(self._reader.read_last_entry)

    def __iter__(self) -> Iterator[api.Entry]:
        return each(self._thread, self._reader.stream)

    def tail(self, timeout: float) -> Iterator[api.Entry]:
        return each(self._thread, lambda: self._reader.tail(timeout))

    def close(self) -> None:
        self._thread.wait(self._reader.close)
