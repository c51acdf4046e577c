"""
Small versioned records beside the ledgers, for what is built on ledgers: a tree of paths, each with a value that
changes by compare-and-set, and claims, which go with the session that made them.

Knows: the operations, their bounds, results and errors (metadata-rules.md 10).
Does not know: how a record is kept, what its value means.

Every operation returns a Deferred that fires on the reactor's thread, and fails as one of `MetadataStore` does.

Safety: an operation that fails with plain `MetaStore` may have taken effect, and may still do so, until the version
that it named has moved or its path is gone.  A driver may try again by itself, so `RecordChanged`, `RecordExists` and
`NoRecord` may be the echo of its own first try: callers decide by the content of a record, never by the error alone.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from quire.metadata.auditing import Auditing
from quire.metadata.repairs import Repairs
from quire.metadata.store import ANY, MetadataStore, Versioned, Watch
from quire.protocol.errors import IncorrectParameter, MetaStore

# SPDX-License-Identifier: Apache-2.0

VALUE_BYTES_MAX = 768 << 10
MULTI_BYTES_MAX = 896 << 10  # of paths, values and the frames of the steps: below ZooKeeper's packet of 1,048,575 bytes
MULTI_STEPS_MAX = 5000
STEP_BYTES = 64  # of one step beside its path and value, at most
DEPTH_MAX = 10
COMPONENT = re.compile(r"[A-Za-z0-9._%-]{1,200}")
PAGE = 1000


class RecordError(MetaStore):
    """What the state of a record makes of an operation.  `step`: which step of a multi failed, from 0."""

    step = 0


class NoRecord(RecordError):
    """The record, or the parent of the one to be created, does not exist."""


class RecordExists(RecordError):
    """There is a record at this path."""


class RecordChanged(RecordError):
    """The record does not have the version that was named."""


class RecordHasChildren(RecordError):
    """A record with children can't be deleted."""


@dataclass(frozen=True, slots=True)
class Create:
    """A step: the record must not exist, its parent must.  `claim`: it goes with the session, and has no children."""

    path: str
    data: bytes = b""
    claim: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """A step: replaces the value of that version."""

    path: str
    data: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Delete:
    """A step: removes the record of that version (`ANY`: of whichever), which has no children."""

    path: str
    version: int


@dataclass(frozen=True, slots=True)
class Check:
    """A step: the record has that version; `ANY`: it exists."""

    path: str
    version: int = ANY


Step = Create | Write | Delete | Check
RecordWatcher = Callable[[Versioned[bytes] | None], None]
ChildrenWatcher = Callable[[list[str] | None], None]


def check_path(path: str) -> None:
    """`IncorrectParameter` for a path that no record can have."""
    names = path.split("/")
    if len(names) > DEPTH_MAX or not all(COMPONENT.fullmatch(name) and name not in {".", ".."} for name in names):
        raise IncorrectParameter(
            f"{path[:250]!r} is no path of a record: 1 to {DEPTH_MAX} names of 1 to 200 of A-Z a-z 0-9 . _ - %, "
            "separated by /"
        )


def check_step(step: Step) -> None:
    """`IncorrectParameter` for a step that no store takes."""
    check_path(step.path)
    if isinstance(step, Create | Write) and len(step.data) > VALUE_BYTES_MAX:
        raise IncorrectParameter(
            f"record {step.path}: the value has {len(step.data)} bytes, at most {VALUE_BYTES_MAX} are allowed"
        )
    if isinstance(step, Write | Delete | Check) and (
        step.version < ANY or (step.version == ANY and isinstance(step, Write))
    ):
        raise IncorrectParameter(
            f"record {step.path}: a {type(step).__name__.lower()} names the version that was read, not {step.version}"
        )


def check_multi(steps: Sequence[Step]) -> None:
    """`IncorrectParameter` for steps that can't be one multi."""
    for step in steps:
        check_step(step)
    size = sum(
        len(step.path) + STEP_BYTES + (len(step.data) if isinstance(step, Create | Write) else 0) for step in steps
    )
    if not steps or len(steps) > MULTI_STEPS_MAX or size > MULTI_BYTES_MAX:
        raise IncorrectParameter(
            f"a multi has 1 to {MULTI_STEPS_MAX} steps of {MULTI_BYTES_MAX} bytes together, not {len(steps)} of {size}"
        )


def parent_of(path: str) -> str:
    """The path above; empty for a record at the top."""
    return path.rpartition("/")[0]


def page_of(names: Sequence[str], after: str, limit: int) -> list[str]:
    """The next `limit` names above `after`, ascending."""
    return sorted(name for name in names if name > after)[:limit]


def check_children(path: str, limit: int) -> None:
    """`IncorrectParameter` for a page that can't be asked for: an empty one means the end."""
    check_path(path)
    if limit < 1:
        raise IncorrectParameter(f"a page of the children of {path} has at least 1, not {limit}")


class Records(ABC):
    """The records of one handle: they share its session.  `WrongCluster` when they are those of a former cluster."""

    @abstractmethod
    def read(self, path: str) -> Deferred[Versioned[bytes]]:
        """`NoRecord`."""

    @abstractmethod
    def multi(self, steps: Sequence[Step]) -> Deferred[list[int]]:
        """
        All of the steps or none; the version that each leaves (`ANY` for `Delete` and `Check`).  Fails as the first
        step that can't be done: `NoRecord`, `RecordExists`, `RecordChanged`, `RecordHasChildren`, with `.step`;
        `IncorrectParameter` before anything is sent.
        """

    def create(self, path: str, data: bytes, *, claim: bool = False) -> Deferred[int]:
        """Its version.  `RecordExists`, `NoRecord` (no parent)."""
        return self.multi([Create(path, data, claim)]).addCallback(lambda versions: versions[0])

    def write(self, path: str, data: bytes, version: int) -> Deferred[int]:
        """The new version.  `RecordChanged`, `NoRecord`."""
        return self.multi([Write(path, data, version)]).addCallback(lambda versions: versions[0])

    def delete(self, path: str, version: int) -> Deferred[None]:
        """`NoRecord`, `RecordChanged`, `RecordHasChildren`."""
        return self.multi([Delete(path, version)]).addCallback(lambda _: None)

    @abstractmethod
    def children(self, path: str, after: str = "", limit: int = PAGE) -> Deferred[list[str]]:
        """
        The next at most `limit` names above `after`, ascending; [] at the end and only there.  `NoRecord`.  Works up to
        20,000 children.
        """

    def folder(self, path: str) -> Deferred[None]:
        """Makes the empty records down to `path` that are missing."""
        return Deferred.fromCoroutine(self._folder(path))

    async def _folder(self, path: str) -> None:
        check_path(path)
        try:
            await self.create(path, b"")
        except RecordExists:
            return
        except NoRecord:
            if parent_of(path):
                await self._folder(parent_of(path))
            try:
                await self.create(path, b"")
            except RecordExists:
                return

    @abstractmethod
    def sync(self) -> Deferred[None]:
        """A read that is asked after the answer sees every write that was answered before this was asked."""

    @abstractmethod
    def clock(self) -> Deferred[int]:
        """The store's time of day, in ms since 1970: of ZooKeeper's server, otherwise of this machine."""

    @abstractmethod
    def watch(self, path: str, fn: RecordWatcher) -> Watch:
        """
        Calls `fn` with the current value, then with newer ones as they are seen (not with every one in between); None
        while there is none.
        """

    @abstractmethod
    def watch_children(self, path: str, fn: ChildrenWatcher) -> Watch:
        """Calls `fn` with the children's names, ascending, then whenever they changed; None while `path` is missing."""

    @abstractmethod
    def purge(self, instance_id: str) -> Deferred[None]:
        """Removes the records of the former cluster with that id.  `WrongCluster` when they are those of another."""


class RecordStore(MetadataStore):
    """A metadata store that also keeps records, the repair queue and what auditors agree on, on the same session."""

    records: Records
    repairs: Repairs
    auditing: Auditing


async def put(records: Records, path: str, data: bytes) -> None:
    """Makes this the value of a record, whatever it was, and the record with its folder where there is none."""
    while True:
        try:
            await records.write(path, data, (await records.read(path)).version)
            return
        except NoRecord:
            with suppress(RecordExists):
                await records.folder(parent_of(path))
                await records.create(path, data)
                return
        except RecordChanged:
            continue
