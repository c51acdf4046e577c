"""
Copies read like ledgers: what a client and a log take in the places of bookies.

Knows: which thread reads files.  Does not know: what a reader does with entries.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from twisted.internet.threads import deferToThreadPool

from quire.client.background import running_reactor
from quire.client.handles.copies import Copies, Mark
from quire.client.handles.ledger_record import digest_of
from quire.conf.log import Opener
from quire.pipeline.copies.manifest import NAME, CopyDamaged, Manifest, place_of
from quire.pipeline.copies.places import Place

if TYPE_CHECKING:
    from quire.pipeline.copies.entries import EntryFile

# SPDX-License-Identifier: Apache-2.0

SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
READ_BYTES = 4 << 20  # at a time, for a log
T = TypeVar("T")


def in_thread(reactor: Any, work: Callable[..., T], *args: object) -> Awaitable[T]:
    """Runs a function on a thread of the reactor's pool; without one, of the reactor of blocking programs."""
    chosen = cast(Any, reactor or running_reactor())
    return deferToThreadPool(chosen, chosen.getThreadPool(), work, *args)


class OffloadedLedger:
    """One ledger's copy; files are opened when they are first read, and let go with this."""

    def __init__(self, place: Place, manifest: Manifest, reactor: Any = None) -> None:
        self.manifest = manifest
        self.metadata = manifest.by_files
        self._place = place
        self._reactor = reactor
        self._digest = digest_of(manifest.ledger, manifest.closed)
        self._files: dict[str, EntryFile] = {}

    def bodies(self, file: str, first: int, count_max: int, bytes_max: int) -> Awaitable[list[bytes]]:
        """Whole entries, as the reader of a ledger wants them.  `OSError`, `CopyDamaged`."""
        return in_thread(self._reactor, self.read_file, file, first, count_max, bytes_max)

    def read_file(self, file: str, first: int, count_max: int, bytes_max: int) -> list[bytes]:
        """Does so in this thread."""
        return self.file(file).bodies(first, count_max, bytes_max)

    def file(self, name: str) -> "EntryFile":
        """Opened.  `FileNotFoundError`, `CopyDamaged`."""
        from quire.pipeline.copies.entries import EntryFile

        found = self._files.get(name)
        if found is None:
            uri = self._place.uri_of(f"{self.manifest.ledger}/{name}")
            first = next((file.first for file in self.manifest.files if file.name == name), 0)
            found = EntryFile(uri, self._place.open(f"{self.manifest.ledger}/{name}"), first)
            found = self._files.setdefault(name, found)
        return found

    def groups(self) -> Iterator[tuple[int, list[bytes]]]:
        """(first entry, whole entries) of all, in order, each digest checked.  `OSError`, `CopyDamaged`."""
        ledger, following = self.manifest.ledger, 0
        for file in self.manifest.files:
            for first, bodies in self.file(file.name).groups():
                if first != following or self._digest.intact(ledger, first, bodies) < len(bodies):
                    raise CopyDamaged(
                        f"the copy of ledger {ledger} is damaged from entry {following} on, in {file.name}"
                    )
                yield first, bodies
                following += len(bodies)
        if following != self.metadata.last_entry + 1:
            raise CopyDamaged(f"the copy of ledger {ledger} ends at entry {following - 1}")

    # As a segment of a log.

    def read(self, first: int, last: int) -> Awaitable[Sequence[bytes]]:
        """The payloads of these entries, checked by their digests.  `CopyDamaged`, `OSError`."""
        return in_thread(self._reactor, self.payloads, first, last)

    def payloads(self, first: int, last: int) -> list[bytes]:
        """Does so in this thread."""
        ledger = self.manifest.ledger
        found: list[bytes] = []
        while (at := first + len(found)) <= last:
            (file,) = self.metadata.ensemble_at(at)
            bodies = self.read_file(file, at, last - at + 1, READ_BYTES)
            opened = self._digest.open_run(ledger, at, bodies)
            found += opened
            if len(opened) < len(bodies):
                raise CopyDamaged(f"the copy of entry {first + len(found)} of ledger {ledger} is damaged, in {file}")
        return found

    async def close(self) -> None:
        """Nothing is under way that has to end."""
        self._files.clear()


class Offloaded:
    """The copies below a URI, for `quire.client.connect(uri, copies=…)`.  `reactor`: of Twisted programs."""

    def __init__(self, uri: str, reactor: Any = None) -> None:
        self._uri = uri
        self._reactor = reactor
        self._place: Place | None = None

    @property
    def place(self) -> Place:
        """`ImportError` without PyArrow, `ValueError` for a URI of no known form."""
        if self._place is None:
            self._place = Place(self._uri)
        return self._place

    def find(self, ledger: int) -> Awaitable[OffloadedLedger | None]:
        """Opens the copy of a ledger; None when there is none.  `CopyDamaged`."""
        return in_thread(self._reactor, self.opened, ledger)

    def opened(self, ledger: int) -> OffloadedLedger | None:
        """Does so in this thread."""
        manifest = manifest_of(self.place, ledger)
        return None if manifest is None else OffloadedLedger(self.place, manifest, self._reactor)

    def ledgers(self) -> Awaitable[list[int]]:
        """Lists the ledgers that may have copies, ascending."""
        return in_thread(self._reactor, self.listed)

    def listed(self) -> list[int]:
        """Does so in this thread."""
        return sorted(int(each) for each in self.place.folders() if each.isdecimal())


def manifest_of(place: Place, ledger: int) -> Manifest | None:
    """Reads a ledger's manifest; None when there is none.  `CopyDamaged`, also when it is another ledger's."""
    data = place.read(place_of(ledger))
    if data is None:
        return None
    found = Manifest.decode(data)
    if found.ledger != ledger:
        raise CopyDamaged(f"{place.uri_of(place_of(ledger))} is of ledger {found.ledger}")
    return found


def copies(uri: str, reactor: Any = None) -> Copies:
    """Makes the place of ledgers that bookies no longer have, for `connect(metadata, copies=copies(uri))`."""
    return Offloaded(uri, reactor)


def openers(reactor: Any = None) -> Mapping[str, Opener]:
    """Makes openers of offloaded segments, for `LogOptions(openers=openers())`."""

    def load(mark: Mark) -> OffloadedLedger:
        uri = str(mark.get("uri", ""))
        base, question, query = uri.partition("?")
        folder, _slash, name = base.rpartition("/")
        root, _slash, ledger = folder.rpartition("/")
        if name != NAME or not ledger.isdecimal():
            raise CopyDamaged(f"{uri} is no manifest of an offloaded ledger")
        place = Place(f"{root}{question}{query}")
        manifest = manifest_of(place, int(ledger))
        if manifest is None:
            raise CopyDamaged(f"there is no manifest {uri} any more")
        if manifest.sum != mark.get("sum"):
            raise CopyDamaged(f"{uri} is not the manifest that the segment is marked with")
        return OffloadedLedger(place, manifest, reactor)

    async def opened(mark: Mark) -> OffloadedLedger:
        return await in_thread(reactor, load, mark)

    return dict.fromkeys(SCHEMES, opened)
