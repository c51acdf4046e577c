"""
The contract of a metadata store: what every driver does.

Knows: the operations, their results and errors, version tokens, service information as a value (metadata-rules.md 9).
Does not know: how anything is kept.

Every operation returns a Deferred that fires on the reactor's thread.  A store that can't be used fails it with
`MetaStore`, which names the store's address, within the session timeout: never a hang.  Watches and session listeners
are called on the reactor's thread, never from inside the call that caused them.

Safety: a ledger's metadata changes only by compare-and-set on the version that was read with it.

Long: one contract, and its values and errors with it, so that a driver and its callers import one module.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults, maybeDeferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import (
    BookieHandleNotAvailable,
    LedgerExist,
    MetaStore,
    NoSuchLedgerExistsOnMetadataServer,
)

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

ANY = -1  # as a version: whatever it is
NEW = -2  # as a version: it must not exist

SESSION_TIMEOUT_MS = 10_000
LEDGER_ID_MAX = (1 << 63) - 2  # 2^63 - 1 makes the garbage collection of Apache's bookies delete everything
CTOKEN_MAX = (1 << 63) - 2
ID_TRIES_MAX = 100


async def at_once(stories: "list[Coroutine[Deferred[Any], Any, T]]") -> list[T]:
    """Runs a few requests at the same time; their results in order, or the first error."""
    try:
        return await gatherResults([Deferred.fromCoroutine(story) for story in stories], consumeErrors=True)
    except FirstError as first:
        first.subFailure.raiseException()


def notify(fn: Callable[..., object], *values: object) -> None:
    """Calls a listener.  What it raises is logged; it hurts neither the store nor the other listeners."""
    maybeDeferred(fn, *values).addErrback(_complain)


def _complain(failure: Failure) -> None:
    log.failure("a listener of the metadata failed", failure=failure)


class Versioned(NamedTuple, Generic[T]):
    """
    A value and the token to change it with.  Tokens of one key grow with each write; compare and echo them, nothing
    else.
    """

    value: T
    version: int


class ClusterExists(MetaStore):
    """The cluster was initialised before."""


class NoCluster(MetaStore):
    """There is no cluster at this address yet."""


class StoreClosed(MetaStore):
    """The handle on the store was closed: it answers nothing any more."""

    def __init__(self) -> None:
        super().__init__("this metadata store was closed")


class WrongCluster(MetaStore):
    """The cluster is not the one that was named, or its bookies still run."""


class SetBack(MetaStore):
    """The store knows less than was seen of it before, as after an old backup: what it lacks is no evidence."""


class CookieExists(MetaStore):
    """The bookie has a cookie already."""


class CookieNotFound(MetaStore):
    """The bookie has no cookie."""


class CookieChanged(MetaStore):
    """The cookie is not the version that was named."""


class BookieRegistered(MetaStore):
    """Another live process is registered under this bookie id."""


class NotRegistered(MetaStore):
    """The bookie is not registered, so it can't be unregistered."""


def no_cluster(uri: str) -> NoCluster:
    """The error of an address that holds no cluster, with the next command."""
    return NoCluster(f"{uri} holds no cluster yet: make one with `quire metadata init --metadata {uri}`")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster's identity: its id (a UUID in lower case) and the layout text of its ledgers."""

    instance_id: str
    layout: str


class Progress(NamedTuple):
    """How far a store has come.  Neither number ever falls, unless the store is set back to what it was before."""

    changes: int  # grows with every change of a ledger, at least
    next_ledger: int  # ids from here on were not given yet; callers may have chosen some


BOOKIE_PROTOCOL = "bookie-rpc"
BOOKIE_ENDPOINT = "bookie"
HTTP_ENDPOINT = "httpserver"
HOST_PROPERTY = "quire.host"  # of a bookie's properties: the machine that it shares with others
INCARNATION_PROPERTY = "quire.incarnation"  # which set of directories has the id now (D19)
TOKEN_PROPERTY = "quire.adminTokenFile"  # where the token of its HTTP port is, on its own machine


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of a bookie.  `id` is "bookie" or "httpserver"; `extensions` says "tls" where it is on."""

    id: str
    host: str
    port: int
    protocol: str = BOOKIE_PROTOCOL
    auth: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """The announcement of a bookie when it registers (metadata-rules.md 5.2)."""

    endpoints: tuple[Endpoint, ...]
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "endpoints", tuple(self.endpoints))
        object.__setattr__(self, "properties", MappingProxyType(dict(self.properties)))

    @classmethod
    def of(
        cls,
        host: str,
        port: int,
        *,
        http: tuple[str, int] | None = None,
        https: bool = False,
        tls: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> "ServiceInfo":
        """A bookie at host and port, perhaps with an HTTP server at `http`."""
        endpoints = [Endpoint(BOOKIE_ENDPOINT, host, port, extensions=("tls",) if tls else ())]
        if http is not None:
            endpoints.append(Endpoint(HTTP_ENDPOINT, http[0], http[1], protocol="https" if https else "http"))
        return cls(tuple(endpoints), properties or {})

    def bookie_address(self) -> tuple[str, int]:
        """(host, port) for ledger traffic; `BookieHandleNotAvailable` when it announced none."""
        for endpoint in self.endpoints:
            if endpoint.protocol == BOOKIE_PROTOCOL:
                return endpoint.host, endpoint.port
        raise BookieHandleNotAvailable(f"the bookie announced no {BOOKIE_PROTOCOL} address")

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the bookie's directories (D19); None: it announced none, as Apache's bookies do."""
        return self.properties.get(INCARNATION_PROPERTY)

    @property
    def http(self) -> Endpoint | None:
        """Where its metrics are served, if anywhere."""
        return next((endpoint for endpoint in self.endpoints if endpoint.id == HTTP_ENDPOINT), None)


@dataclass(frozen=True, slots=True)
class BookieList:
    """
    The bookies that are registered now.  A bookie that changes between the two lists may be in both for a moment: it is
    writable then.
    """

    writable: Mapping[str, ServiceInfo]
    read_only: Mapping[str, ServiceInfo]
    changes: int = field(default=0, compare=False)  # how often a bookie has joined or left one of the lists, ever
    # By bookie and whether read-only, where it is known: what tells this registration from others of that bookie.
    joined: Mapping[tuple[str, bool], object] = field(default_factory=dict, compare=False)

    def repeats(self, heard: "BookieList | None") -> bool:
        """
        True if this list equals that one, which was reported: no bookie has come or gone since, not even for a moment.
        """
        return heard == self and heard.changes == self.changes

    def follows(self, before: "BookieList") -> bool:
        """
        True if all changes since then show; if not, a bookie that is away in both may have been there between.  One
        that is in both by another registration has left and joined.
        """
        pairs = ((self.writable, before.writable), (self.read_only, before.read_only))
        seen = sum(len(now.keys() ^ then.keys()) for now, then in pairs)
        more = self.changes - before.changes
        if more == 0 or self.joined is before.joined:  # the usual look, and no registration is another one
            return more == seen
        both = self.joined.keys() & before.joined.keys()
        anew = sum(self.joined[each] != before.joined[each] for each in both)
        return more == seen + 2 * anew

    def find(self, bookie: str) -> ServiceInfo | None:
        """Finds a bookie's announcement in either list; None when it is in neither."""
        return self.writable.get(bookie) or self.read_only.get(bookie)


class Watch:
    """Calls a function at each change; `cancel()` ends it, and no call comes after that."""

    __slots__ = ("_on_cancel", "cancelled")

    def __init__(self, on_cancel: Callable[[], None]) -> None:
        self._on_cancel = on_cancel
        self.cancelled = False

    def cancel(self) -> None:
        """Ends the watch; does nothing the second time."""
        if not self.cancelled:
            self.cancelled = True
            self._on_cancel()


LedgerWatcher = Callable[[Versioned[LedgerMetadata] | None], None]
BookieWatcher = Callable[[BookieList], None]


class MetadataStore(ABC):
    """
    One handle on one cluster's metadata; it owns one session, which the registrations made through it live in.
    Ledger ids are 0 to 2^63 - 2 (`IncorrectParameter` otherwise).
    """

    uri: str  # as a user would type it to reach the same store; hosts parted by ";"

    @abstractmethod
    def close(self) -> Deferred[None]:
        """
        Ends the session (its registrations go), the watches and the driver's threads; operations under way fail with
        `MetaStore`.
        """

    # -- the cluster -----------------------------------------------------------------------------------------------

    @abstractmethod
    def init_cluster(self) -> Deferred[str]:
        """Makes an empty cluster and returns its new instance id.  `ClusterExists` if there is one."""

    @abstractmethod
    def cluster(self) -> Deferred[Cluster]:
        """`NoCluster` (its text names `quire metadata init`) when there is none."""

    @abstractmethod
    def destroy_cluster(self, instance_id: str) -> Deferred[None]:
        """
        Removes all metadata.  `WrongCluster` when the id differs, a bookie is registered, or foreign nodes are found;
        `NoCluster`.
        """

    # -- ledgers ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def new_ledger_id(self) -> Deferred[int]:
        """
        An id that was never given before and never will be again, 0 to 2^63 - 2; gaps are normal, and order is not
        promised. `LedgerIdOverflow`; `LedgerExist`: callers chose too many in a row, the next call goes on behind them.
        """

    @abstractmethod
    def progress(self) -> Deferred[Progress]:
        """Reads the present progress: nothing that was answered before is missing in it.  `NoCluster`."""

    @abstractmethod
    def raise_ledger_ids(self, first: int) -> Deferred[None]:
        """From now on no id below `first` is given; a store that is further already stays as it is.  `NoCluster`."""

    @abstractmethod
    def read_set_back(self) -> Deferred[bytes]:
        """
        Reads the notes of bookies and an operator about a store that was set back; empty when there never was a note.
        """

    @abstractmethod
    def swap_set_back(self, old: bytes, new: bytes) -> Deferred[bool]:
        """Notes something else, unless it is not `old` any more what is noted: then False."""

    @abstractmethod
    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Deferred[Versioned[LedgerMetadata]]:
        """Stores new metadata and returns what was stored (with the creation token).  `LedgerExist`."""

    def create_new_ledger(self, metadata: LedgerMetadata) -> Deferred[tuple[int, Versioned[LedgerMetadata]]]:
        """Creates a ledger under an id as `new_ledger_id` would give now, which comes back too; the errors of both."""
        return Deferred.fromCoroutine(self._create_new_ledger(metadata))

    async def _create_new_ledger(self, metadata: LedgerMetadata) -> tuple[int, Versioned[LedgerMetadata]]:
        for _ in range(ID_TRIES_MAX):
            ledger = await self.new_ledger_id()
            try:
                return ledger, await self.create_ledger(ledger, metadata)
            except LedgerExist:  # by a caller who chose that id, or by this very create, whose answer was lost
                (found,) = await self.read_ledgers([ledger])
                if found is not None and found.value.ctoken == metadata.ctoken != 0:
                    return ledger, found
        raise LedgerExist(f"{ID_TRIES_MAX} ids that {self.uri} gave out were all taken: try again, which goes on")

    @abstractmethod
    def read_ledger(self, ledger: int) -> Deferred[Versioned[LedgerMetadata]]:
        """`NoSuchLedgerExistsOnMetadataServer`; `MetadataSerialization` when the bytes can't be read."""

    @abstractmethod
    def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> Deferred[Versioned[LedgerMetadata]]:
        """
        Compare-and-set: stores only if the version is still the one given.  `MetadataVersion` if it is not (also
        possible after a success whose answer was lost: read again before deciding),
        `NoSuchLedgerExistsOnMetadataServer`, `IncorrectParameter` for ANY and NEW.
        """

    @abstractmethod
    def delete_ledger(self, ledger: int) -> Deferred[None]:
        """Removes the metadata whatever its state; a missing ledger is success."""

    @abstractmethod
    def ledger_ids(self, after: int = -1, limit: int = 10_000) -> Deferred[list[int]]:
        """
        The next at most `limit` ids above `after`, ascending; [] at the end and only there: trouble fails, it never
        shortens the list.  `IncorrectParameter` for a limit below 1.
        """

    def read_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[Versioned[LedgerMetadata] | None]]:
        """
        Reads the metadata of many ledgers, in their order; None for one that definitely does not exist.  Each is read
        by itself, not all at one moment.
        """
        return Deferred.fromCoroutine(self._read_ledgers(ledgers))

    async def _read_ledgers(self, ledgers: Sequence[int]) -> list[Versioned[LedgerMetadata] | None]:
        async def found(ledger: int) -> Versioned[LedgerMetadata] | None:
            try:
                return await self.read_ledger(ledger)
            except NoSuchLedgerExistsOnMetadataServer:
                return None

        return await at_once([found(ledger) for ledger in ledgers])

    def absent_ledgers(self, ledgers: Sequence[int]) -> Deferred[list[int]]:
        """
        Lists those of a few ledgers that definitely do not exist: each is read by itself, and anything but a definite
        word about one of them fails.
        """
        return Deferred.fromCoroutine(self._absent_ledgers(ledgers))

    async def _absent_ledgers(self, ledgers: Sequence[int]) -> list[int]:
        found = await self.read_ledgers(ledgers)
        return [ledger for ledger, metadata in zip(ledgers, found, strict=True) if metadata is None]

    def ledger_deletions(self) -> Deferred[int | None]:
        """
        How many ledgers were ever deleted, so that a caller that saw the same number twice need list nothing; None:
        this store doesn't count them.
        """
        return succeed(None)

    @abstractmethod
    def watch_ledger(self, ledger: int, fn: LedgerWatcher) -> Watch:
        """
        Calls `fn` with the current value, then with newer ones as they are seen (not with every one in between); None
        when the ledger is deleted or missing, and then never again.
        """

    # -- bookies ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def register_bookie(self, bookie: str, info: ServiceInfo, read_only: bool = False) -> Deferred[None]:
        """
        Lists the bookie in one of the two lists while this session lives, then takes it off the other one (so one call
        also changes its mode).  When another session holds the id, waits up to the session timeout for that one to end,
        then `BookieRegistered`.  `NoCluster`.
        """

    @abstractmethod
    def unregister_bookie(self, bookie: str, read_only: bool = False) -> Deferred[None]:
        """Takes what this session registered off one list; another's is never touched.  `NotRegistered`."""

    @abstractmethod
    def bookies(self) -> Deferred[BookieList]:
        """The bookies that are registered now."""

    def known_bookies(self) -> Deferred[BookieList]:
        """
        The registered bookies as far as this handle knows, which may be behind by a moment: to choose from, never as
        evidence.
        """
        return self.bookies()

    @abstractmethod
    def watch_bookies(self, fn: BookieWatcher) -> Watch:
        """Calls `fn` with the current lists, then whenever they changed, if only to what they were."""

    @abstractmethod
    def service_info(self, bookie: str) -> Deferred[ServiceInfo | None]:
        """Reads the announcement of a registered bookie; None when it is not registered."""

    def places(self) -> Deferred[bytes | None]:
        """
        The mapping of bookies to racks that Pulsar's tools keep beside the ledgers, as it is stored; None where there
        is none.
        """
        return succeed(None)

    @abstractmethod
    def on_session_lost(self, fn: Callable[[], None]) -> None:
        """
        Calls `fn` when registrations made through this handle are gone: after the session expired, once a new one is
        there to make them again; or because one was removed from outside while the session lives.
        """

    # -- cookies ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def read_cookie(self, bookie: str) -> Deferred[Versioned[bytes]]:
        """`CookieNotFound`."""

    @abstractmethod
    def write_cookie(self, bookie: str, data: bytes, version: int) -> Deferred[int]:
        """
        The new version.  NEW: it must not exist (`CookieExists`); ANY or a number: it must (`CookieNotFound`,
        `CookieChanged`).
        """

    @abstractmethod
    def remove_cookie(self, bookie: str, version: int = ANY) -> Deferred[None]:
        """`CookieNotFound`, `CookieChanged`."""

    @abstractmethod
    def cookies(self) -> Deferred[list[str]]:
        """Every bookie the cluster has ever known and not forgotten, sorted."""
