"""
The values, errors and bounds of a metadata store (`tree_store`).

Knows: version tokens, service information as a value (metadata-rules.md 9), the lists of bookies.
Does not know: how anything is kept.
"""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, FirstError, gatherResults, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from quire.metadata.ledger import LedgerMetadata
from quire.metadata.position import Position
from quire.protocol.errors import BookieHandleNotAvailable, MetaStore

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")
log = Logger()

ANY = -1  # as a version: whatever it is
NEW = -2  # as a version: it must not exist

SESSION_TIMEOUT_MS = 10_000
LEDGER_ID_MAX = (1 << 63) - 2  # 2^63 - 1 makes the garbage collection of Apache's bookies delete everything
CTOKEN_MAX = (1 << 63) - 2


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
    """How far a store has come.  None of the numbers ever falls, unless the store is set back to what it was before."""

    changes: int  # grows with every change of a ledger, at least
    position: Position

    @property
    def next_ledger(self) -> int:
        """Ids from here on were not given yet; where ids are given in no order, lower ones may be given, too."""
        return max(self.position)


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

    def url(self, path: str) -> str:
        """The URL of a path there, if it speaks HTTP."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.protocol == 'https' else 'http'}://{host}:{self.port}{path}"


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
    # How often a bookie has joined or left one of the lists, ever; None where nothing counts that.
    changes: int | None = field(default=0, compare=False)
    # By bookie and whether read-only, where it is known: what tells this registration from others of that bookie.
    joined: Mapping[tuple[str, bool], object] = field(default_factory=dict, compare=False)

    def repeats(self, heard: "BookieList | None") -> bool:
        """
        True if this list equals that one, which was reported: no bookie has come or gone since, not even for a moment.
        """
        if heard != self or heard.changes != self.changes:
            return False
        return self.changes is not None or heard.joined == self.joined

    def follows(self, before: "BookieList") -> bool:
        """
        True if all changes since then show; if not, a bookie that is away in both may have been there between.  One
        that is in both by another registration has left and joined.  Where nothing counts changes none is missed: a
        bookie that is away stays away, for all that is known.
        """
        if self.changes is None or before.changes is None:
            return True
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
