"""
A cluster's metadata in memory: what the handles share, and the effect of each operation on it.

Knows: versions, ids, registrations by session, and which errors an operation raises.  An operation takes effect at
once.
Does not know: handles, when an operation is applied, watches (`store`).
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from quire.metadata.clock import time_of_day
from quire.metadata.ledger import LedgerMetadata, check_ledger_id, check_page, no_ledger
from quire.metadata.memory.tree import Nodes
from quire.metadata.store import (
    CTOKEN_MAX,
    LEDGER_ID_MAX,
    BookieList,
    Cluster,
    ClusterExists,
    Progress,
    ServiceInfo,
    Versioned,
    WrongCluster,
    no_cluster,
)
from quire.metadata.tree import Create
from quire.protocol.errors import (
    IncorrectParameter,
    LedgerError,
    LedgerExist,
    LedgerIdOverflow,
    MetadataVersion,
)

# SPDX-License-Identifier: Apache-2.0

LAYOUT = "2\nquire.MemoryLedgers:1"
ROOT = "/ledgers"  # of the cluster's nodes
RECORDS = f"{ROOT}-quire"


@dataclass(frozen=True, slots=True)
class Fault:
    """
    A fault of one operation.  `before`: seconds until it takes effect; `after`: seconds from then until its answer;
    `error`: what it fails with, without an effect unless `applied`.  `late`: it fails now, and so many seconds later it
    still takes effect, if it can: a request that arrives after its sender has given up.
    """

    before: float = 0.0
    after: float = 0.0
    error: LedgerError | None = None
    applied: bool = False
    late: float = 0.0


Faults = Callable[[str, tuple[object, ...]], Fault | None]


@dataclass(slots=True)
class Registration:
    session: int
    info: ServiceInfo
    joined: int = 0  # the count of registrations then; its list sets it


@dataclass(slots=True)
class MemoryCluster:
    """The state that handles share.  `seed` decides instance ids and creation tokens."""

    name: str
    seed: int = 0
    instance_id: str | None = None
    ledgers: dict[int, Versioned[LedgerMetadata]] = field(default_factory=dict)
    writable: dict[str, Registration] = field(default_factory=dict)
    read_only: dict[str, Registration] = field(default_factory=dict)
    next_ledger: int = 0
    deletions: int = 0
    registrations: int = 0  # how often a bookie has joined or left a list
    changes: int = 0
    next_session: int = 0
    listeners: list[Callable[[], None]] = field(default_factory=list)  # one per open handle: "something changed"
    # Called for each registration and lock that is removed by a call: what, of which bookie or ledger, whose session
    # made it, and in whose it was removed.
    went: Callable[[str, object, int, int], None] = field(default=lambda *_: None)
    time_of_day: Callable[[], float] = time_of_day
    random: Random = field(init=False)
    nodes: Nodes = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.name}/{self.seed}")
        self.nodes = Nodes(self.uri, self.changed)

    @property
    def uri(self) -> str:
        """The address, for errors."""
        return f"memory://{self.name}"

    def lists(self, read_only: bool) -> dict[str, Registration]:
        """The registrations of one kind, by bookie; not a copy."""
        return self.read_only if read_only else self.writable

    def bookie_list(self) -> BookieList:
        """The bookies that are registered now."""
        return BookieList(
            {bookie: held.info for bookie, held in sorted(self.writable.items())},
            {bookie: held.info for bookie, held in sorted(self.read_only.items())},
            self.registrations,
            {
                (bookie, read_only): held.joined
                for read_only in (False, True)
                for bookie, held in self.lists(read_only).items()
            },
        )

    def enlist(self, bookie: str, read_only: bool, registration: Registration) -> None:
        """Puts a bookie on a list, or renews what is there."""
        held = self.lists(read_only).get(bookie)
        self.registrations += held is None
        registration.joined = self.registrations if held is None else held.joined
        self.lists(read_only)[bookie] = registration

    def delist(self, bookie: str, read_only: bool) -> bool:
        """Takes a bookie off a list; whether it was there."""
        gone = self.lists(read_only).pop(bookie, None) is not None
        self.registrations += gone
        return gone

    def end_session(self, session: int) -> None:
        """Removes the registrations and claims of a session, and calls the listeners."""
        self.nodes.end_session(session)
        for read_only in (False, True):
            for bookie, held in list(self.lists(read_only).items()):
                if held.session == session:
                    self.delist(bookie, read_only)
        self.changed()

    def changed(self) -> None:
        """Counts a change and calls the listeners."""
        self.changes += 1
        for listener in list(self.listeners):
            listener()

    def init(self) -> str:
        """Makes the cluster and returns its instance id; `ClusterExists`."""
        if self.instance_id is not None:
            raise ClusterExists(f"{self.uri} holds the cluster {self.instance_id} already")
        self.instance_id = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        self.nodes.transact([Create(ROOT)], 0)
        return self.instance_id

    def describe(self) -> Cluster:
        """The instance id and the layout; `NoCluster` before `init`."""
        if self.instance_id is None:
            raise no_cluster(self.uri)
        return Cluster(self.instance_id, LAYOUT)

    def destroy(self, instance_id: str) -> None:
        """Removes all metadata; `NoCluster`, or `WrongCluster` when the id is another's or bookies are registered."""
        found = self.describe().instance_id
        if found != instance_id:
            raise WrongCluster(f"{self.uri} holds the cluster {found}, not {instance_id}")
        alive = sorted(self.writable | self.read_only)
        if alive:
            raise WrongCluster(f"{self.uri}: stop its bookies first: {', '.join(alive)}")
        self.instance_id = None
        self.ledgers.clear()
        self.nodes.clear()

    def new_ledger_id(self) -> int:
        """An id that no ledger has and none was given before; `NoCluster`, `LedgerIdOverflow`."""
        self.describe()
        ledger = self.next_ledger
        while ledger in self.ledgers:
            ledger += 1
        if ledger > LEDGER_ID_MAX:
            raise LedgerIdOverflow(f"{self.uri} has no ledger ids left")
        self.next_ledger = ledger + 1
        return ledger

    def progress(self) -> Progress:
        """How far the metadata has come; `NoCluster`."""
        self.describe()
        return Progress(self.changes, self.next_ledger)

    def raise_ledger_ids(self, first: int) -> None:
        """No id below `first` is given from now on; `NoCluster`."""
        self.describe()
        self.next_ledger = max(self.next_ledger, first)

    def create_ledger(self, ledger: int, metadata: LedgerMetadata) -> Versioned[LedgerMetadata]:
        """Stores a new ledger, with a creation token, and returns it; `LedgerExist`, `NoCluster`."""
        check_ledger_id(ledger)
        self.describe()
        if ledger in self.ledgers:
            raise LedgerExist(f"ledger {ledger} exists already: give another id, or none to have one chosen")
        if metadata.ctoken == 0 and metadata.format_version >= 3:
            metadata = replace(metadata, ctoken=self.random.randrange(1, CTOKEN_MAX))
        made = self.ledgers[ledger] = Versioned(metadata, 0)
        self.changed()
        return made

    def read_ledger(self, ledger: int) -> Versioned[LedgerMetadata]:
        """The metadata and its version; `NoSuchLedgerExistsOnMetadataServer`."""
        check_ledger_id(ledger)
        found = self.ledgers.get(ledger)
        if found is None:
            raise no_ledger(self.uri, ledger)
        return found

    def write_ledger(self, ledger: int, metadata: LedgerMetadata, version: int) -> Versioned[LedgerMetadata]:
        """
        Replaces the metadata of that version and returns the new one; `MetadataVersion` when it has another, and
        `read_ledger`'s error.
        """
        if version < 0:
            raise IncorrectParameter(
                f"ledger {ledger}: metadata is written with the version that was read, not {version}"
            )
        found = self.read_ledger(ledger)
        if found.version != version:
            raise MetadataVersion(f"ledger {ledger} is at version {found.version}, not {version}")
        written = self.ledgers[ledger] = Versioned(metadata, version + 1)
        self.changed()
        return written

    def delete_ledger(self, ledger: int) -> None:
        """Removes a ledger, if there is one."""
        check_ledger_id(ledger)
        if self.ledgers.pop(ledger, None) is not None:
            self.deletions += 1
            self.changed()

    def ledger_ids(self, after: int, limit: int) -> list[int]:
        """At most `limit` ids above `after`, ascending; `IncorrectParameter`, `NoCluster`."""
        check_page(after, limit)
        self.describe()
        return sorted(ledger for ledger in self.ledgers if ledger > after)[:limit]


CLUSTERS: dict[str, MemoryCluster] = {}  # by the name in memory://name
