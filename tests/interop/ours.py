"""
Our side of an interop test: quire's bookies as processes in anybody's metadata store, and quire's client on the tests'
reactor.

Knows: how to start and kill our bookies, and how to write and read a whole ledger.  Does not know: what is expected of
them.
"""

import hashlib
import pathlib
import sysconfig
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

from twisted.internet.task import deferLater

from quire.client.api import Client, Reader, Writer, connect
from quire.conf.client import ClientOptions
from quire.conf.properties import read
from quire.tools.local_cluster.cluster import LocalBookie, free_ports
from tests.interop.peer import JavaClient
from tests.reactor import reactor, run

BATCH = 500
READY_SECONDS_MAX = 60.0
DIGESTS = ("CRC32C", "CRC32", "MAC", "DUMMY")

# A real text, with empty lines: Python's own decimal arithmetic, some 6,000 lines.
TEXT = pathlib.Path(sysconfig.get_paths()["stdlib"]) / "_pydecimal.py"


PULSARS_FILE = pathlib.Path(__file__).parents[1] / "conf" / "shipped" / "bookkeeper.conf"
OF_A_PLACE = {
    *("bookiePort", "advertisedAddress", "allowLoopback", "journalDirectory", "ledgerDirectories"),
    *("metadataServiceUri", "zkServers", "zkTimeout", "prometheusStatsHttpPort", "autoRecoveryDaemonEnabled"),
}


def pulsars_keys(**more: str) -> dict[str, str]:
    """The keys of the file that Pulsar is shipped with, but those that say where a bookie is, and `more` of them."""
    return {item.key: item.value for item in read(str(PULSARS_FILE)) if item.key not in OF_A_PLACE} | more


def lines() -> list[bytes]:
    """The lines of TEXT, as the Java driver cuts it."""
    return TEXT.read_bytes().removesuffix(b"\n").split(b"\n")


def sha256(payloads: Iterable[bytes]) -> str:
    """Over each payload and a newline, as the Java driver counts."""
    found = hashlib.sha256()
    for payload in payloads:
        found.update(payload)
        found.update(b"\n")
    return found.hexdigest()


def pattern(size: int) -> bytes:
    """The Java driver's payload of this size."""
    return bytes((7 * index + 3) % 256 for index in range(size))


class Bookies:
    """Some quire bookies that register at `metadata`; `with Bookies(folder, uri, 3) as bookies`."""

    def __init__(self, folder: pathlib.Path, metadata: str, count: int, **options: str) -> None:
        settings = {"zkTimeout": "4000"} | options
        self.all = [
            LocalBookie(folder / f"quire-bookie{number}", port) for number, port in enumerate(free_ports(count))
        ]
        for bookie in self.all:
            bookie.directory.mkdir(parents=True, exist_ok=True)
            bookie.write_conf(metadata, settings)

    def __enter__(self) -> "Bookies":
        try:
            for bookie in self.all:
                bookie.begin()
            for bookie in self.all:
                bookie.ready(time.monotonic() + READY_SECONDS_MAX)
        except BaseException:
            self.close()
            raise
        return self

    def kill(self, bookie_id: str) -> None:
        """SIGKILL."""
        self.named(bookie_id).end_now()

    def restart(self, bookie_id: str) -> None:
        """On its old port and data; nothing when it runs."""
        bookie = self.named(bookie_id)
        if bookie.pid is None:
            bookie.begin()
            bookie.ready(time.monotonic() + READY_SECONDS_MAX)

    def named(self, bookie_id: str) -> LocalBookie:
        return next(bookie for bookie in self.all if bookie.id == bookie_id)

    @property
    def ids(self) -> list[str]:
        return [bookie.id for bookie in self.all]

    def close(self) -> None:
        for bookie in self.all:
            bookie.ask_to_end()
        for bookie in self.all:
            bookie.wait_for_end(time.monotonic() + READY_SECONDS_MAX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Ours:
    """
    quire's client, blocking: each call runs on the tests' reactor.  What a test awaits by itself it gets at `client`.
    """

    def __init__(self, metadata: str, **options: Any) -> None:
        made = ClientOptions(**options)

        async def begin() -> Client:
            return await connect(reactor, metadata, made)

        self.client: Client = run(begin)

    def close(self) -> None:
        async def end() -> None:
            await self.client.close()

        run(end)

    def __enter__(self) -> "Ours":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self, **options: Any) -> Writer:
        async def story() -> Writer:
            return await self.client.create_ledger(
                **({"ensemble_size": 3, "write_quorum": 3, "ack_quorum": 2} | options)
            )

        return run(story)

    def append(self, writer: Writer, payloads: Sequence[bytes], seconds: float = 60.0) -> None:
        async def story() -> None:
            for start in range(0, len(payloads), BATCH):
                await writer.append_many(list(payloads[start : start + BATCH]))

        run(story, timeout=seconds)

    def finish(self, writer: Writer) -> None:
        async def story() -> None:
            await writer.close()

        run(story)

    def write(self, payloads: Sequence[bytes], **options: Any) -> int:
        """A new ledger with these entries, closed; its id."""
        writer = self.create(**options)
        self.append(writer, payloads)
        self.finish(writer)
        return writer.id

    def until(self, what: str, true: Callable[[], bool], seconds: float = 30.0) -> None:
        """
        Returns as soon as it is true, asked on the reactor; AssertionError with `what` when it has not become so in
        time.
        """

        async def story() -> None:
            end = reactor.seconds() + seconds
            while not true():
                assert reactor.seconds() < end, f"after {seconds:g} s not yet: {what}"
                await deferLater(reactor, 0.02)

        run(story, timeout=seconds + 10)

    def open(self, ledger: int, password: bytes = b"", recover: bool = True) -> Reader:
        async def story() -> Reader:
            return await self.client.open_ledger(ledger, password=password, recover=recover)

        return run(story)

    def read(self, ledger: int, password: bytes = b"", recover: bool = True) -> list[bytes]:
        """All payloads up to the end that a reader sees."""

        async def story() -> list[bytes]:
            reader = await self.client.open_ledger(ledger, password=password, recover=recover)
            found: list[bytes] = []
            async for entries in reader.stream():
                found.extend(entry.data for entry in entries)
            await reader.close()
            return found

        return run(story)

    def metadata(self, ledger: int) -> Any:
        async def story() -> Any:
            return await self.client.metadata(ledger)

        return run(story)

    def ledger_ids(self) -> list[int]:
        async def story() -> list[int]:
            return list(await self.client.ledger_ids())

        return run(story)


def wait_for_bookies(java: JavaClient, count: int, seconds: int = 30) -> list[str]:
    """The writable bookies that the Java client sees, once there are `count`."""
    found: list[str] = java.call("bookies", count=count, seconds=seconds + 30)["writable"]
    assert len(found) == count, f"{len(found)} bookies are registered, {count} were due: {found}"
    return found
