"""
The edit loop: reads a manifest, applies an edit, writes it by compare-and-set, and tries again after a conflict.

Knows: that an edit keeps its id over all tries, and that an edit whose answer was lost is looked for among the recent
ones; chunks, which are created before the manifest names them.
Does not know: what an edit is about (`core.edits`), who asks.

Safety: the predicate and the change are applied to the very value whose version is replaced, and what an edit names is
looked up after that value was read.  An outcome that is not
known is `MetaStore`, and the caller tries the same edit again with the same id; nobody acts on its absence before the
version has moved past the one that it named.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from random import Random

from quire.log.core import edits
from quire.log.core.counters import LogCounters
from quire.log.core.edits import Edit, Made
from quire.log.core.manifest import Chunk, Manifest, decode_moved, decode_name, moved_error
from quire.log.store.paths import CHILD, PARTS, child_path, children_of, chunk_path, log_path, name_path
from quire.metadata.clock import Clock, pause
from quire.metadata.records import (
    NoRecord,
    RecordChanged,
    RecordError,
    RecordExists,
    Records,
)
from quire.metadata.store import ANY, Versioned
from quire.metadata.tree import Check, Create, Step, Write
from quire.protocol.errors import MetadataTooLarge, MetaStore
from quire.protocol.log_errors import LogDamaged, LogError, LogFull, NoSuchLog, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

CONFLICTS_MAX = 100
SYNC_FROM = 2  # conflicts
PAUSE_FROM = 3
PAUSE_S = (0.005, 0.05)
CHUNKS_KEPT = 16

Beside = Callable[[Manifest, Manifest], Sequence[Step]]  # before and after -> what changes in the same step
LookUp = Callable[[Manifest], Awaitable[bool]]  # before -> whether what the edit names may still be named


def nothing(before: Manifest, after: Manifest) -> Sequence[Step]:
    """Only the manifest changes."""
    return ()


async def moved(_manifest: Manifest) -> bool:
    """As `look_up`: the edit was computed from the version `looked`, and replaces no other one."""
    return False


@dataclass(frozen=True, slots=True)
class Edited:
    """The manifest after an edit, its version, and whether the edit was wanted."""

    manifest: Manifest
    version: int
    done: bool


class LogRecords:
    """
    The records of one log.  `now` is the time of day in seconds; `known` the newest manifest that was read or written
    through this, with its version; `counters` what this process counts of the log.
    """

    def __init__(
        self,
        records: Records,
        clock: Clock,
        random: Random,
        now: Callable[[], float],
        log: str,
        name: str,
        counters: LogCounters | None = None,
    ) -> None:
        self.records = records
        self.counters = counters or LogCounters()
        self.log = log
        self.known: Versioned[Manifest] | None = None
        self.name = name
        self._clock = clock
        self._random = random
        self._now = now
        self._chunks: dict[str, Chunk] = {}  # the last that were read; immutable

    @property
    def path(self) -> str:
        """The path of the manifest."""
        return log_path(self.log)

    def new_id(self) -> str:
        """A random id of an edit, claim or log handle."""
        return f"{self._random.getrandbits(64):016x}"

    @cached_property
    def holder(self) -> str:
        """A random token of this handle, for claims beside that of an owner."""
        return self.new_id()

    def now_ms(self) -> int:
        """The time of day."""
        return int(self._now() * 1000)

    async def read(self) -> Versioned[Manifest]:
        """The manifest of now.  `NoSuchLog`, `LogMoved`, `LogDamaged`, `UnknownFormat`."""
        try:
            data, version = await self.records.read(self.path)
        except NoRecord:
            self.known = None
            raise await self._left() from None
        return self.learn(data, version)

    async def _left(self) -> NoSuchLog:
        """The error of a log that is not there, whose name may say where it went."""
        with suppress(NoRecord, ValueError, LogDamaged, UnknownFormat):  # none, or of a log known by its id alone
            data = (await self.records.read(name_path(self.name))).value
            moved = decode_moved(data)
            if moved is not None and decode_name(data) == self.log:
                return moved_error(self.name, moved)
        return self.gone()

    def learn(self, data: bytes, version: int) -> Versioned[Manifest]:
        """Takes over a manifest that was read or heard; the one that is known stays when it is newer."""
        known = self.known
        if known is not None and known.version >= version:
            return known
        try:
            self.known = Versioned(Manifest.decode(data), version)
        except (LogDamaged, UnknownFormat) as error:
            raise type(error)(f"{error} (the log {self.name!r}, record {self.path})") from None
        self.counters.known(self.known.value, len(data))
        return self.known

    def ended(self) -> LogError:
        """The error of what comes to a log after its end."""
        assert self.known is not None
        return edits.terminated(self.known.value)

    def gone(self) -> NoSuchLog:
        """The error of a log that is not there."""
        return NoSuchLog(f"there is no log {self.name!r}: `quire log list` shows those that there are")

    async def chunk(self, name: str) -> Chunk:
        """A chunk that a manifest names; `NoRecord` when it is gone, as after a trim."""
        found = self._chunks.pop(name, None)
        if found is None:
            found = Chunk.decode((await self.records.read(chunk_path(self.log, name))).value)
        self._chunks[name] = found
        while len(self._chunks) > CHUNKS_KEPT:
            del self._chunks[next(iter(self._chunks))]
        return found

    async def names(self, folder: str) -> list[str]:
        """Lists the names of all records in a folder, ascending; none where there is no such folder."""
        return [name async for page in children_of(self.records, folder) for name in page]

    async def is_claimed(self) -> bool:
        """True if a process whose session lives has the claim on the log.  `MetaStore`."""
        try:
            await self.records.read(f"{self.path}/owner")
        except NoRecord:
            return False
        return True

    async def remove(self, path: str, version: int = ANY) -> None:
        """Deletes a record; one that is gone is success.  `RecordChanged`, `RecordHasChildren`."""
        with suppress(NoRecord):
            await self.records.delete(path, version)

    async def edit(
        self,
        edit: Edit,
        id_: str = "",
        beside: Beside = nothing,
        look_up: LookUp | None = None,
        looked: int | None = None,
    ) -> Edited:
        """
        Carries out an edit.  Its refusals; `MetaStore` when its outcome is unknown: call it again with the same id.
        `RecordError` of a step beside the manifest's.  `look_up` is asked with each value that the edit is tried upon,
        after that was read, but not with the version `looked`: False ends the tries, the edit not done.
        """
        try:
            edited = await self._edit(edit, id_ or self.new_id(), beside, look_up, looked)
        except (LogError, RecordError):
            self.counters.edited(edit.name, "refused")
            raise
        except MetaStore:
            self.counters.edited(edit.name, "unknown")
            raise
        self.counters.edited(edit.name, "done" if edited.done else "unwanted")
        return edited

    async def _edit(self, edit: Edit, id_: str, beside: Beside, look_up: LookUp | None, looked: int | None) -> Edited:
        is_fresh = self.known is None
        current = self.known or await self.read()
        conflicts = 0
        while True:
            manifest = current.value
            if id_ in manifest.recent:
                return Edited(manifest, current.version, True)
            if look_up is not None and current.version != looked:
                if not await look_up(manifest):
                    return Edited(manifest, current.version, False)
                looked = current.version
            refusal: LogError | None = None
            try:
                after = edit.apply(manifest)
            except LogError as error:
                after, refusal = None, error
            if after is None and not is_fresh:  # an old value may say no to what a new one wants
                is_fresh, current = True, await self.read()
                continue
            if refusal is not None:
                raise refusal
            if after is None:
                return Edited(manifest, current.version, False)
            made = edits.made(after, id_, self.now_ms(), lambda: f"{self._random.getrandbits(32):08x}")
            try:
                version = await self._write(made, current, beside(manifest, made.manifest))
            except RecordChanged as error:
                if error.step != len(made.chunks):  # another step than the manifest's
                    raise
            except MetadataTooLarge as error:
                await self.records.sync()
                current = await self.read()
                if id_ not in current.value.recent:  # else the connection was lost for another reason
                    raise self._full(error) from error
                return Edited(current.value, current.version, True)
            else:
                return Edited(self.learn_own(made.manifest, version), version, True)
            conflicts += 1
            self.counters.edit_conflicts += 1
            if conflicts >= CONFLICTS_MAX:
                raise MetaStore(f"the manifest of the log {self.name!r} changed {conflicts} times during one edit")
            if conflicts >= SYNC_FROM:
                await self.records.sync()
            if conflicts >= PAUSE_FROM:
                await pause(self._clock, self._random.uniform(*PAUSE_S))
            before, current, is_fresh = current, await self.read(), True
            if id_ not in current.value.recent and current.version != before.version:
                await self._drop(made)

    def learn_own(self, manifest: Manifest, version: int) -> Manifest:
        """Takes over a manifest that was just written."""
        if self.known is None or self.known.version < version:
            self.known = Versioned(manifest, version)
        return manifest

    async def _write(self, made: Made, current: Versioned[Manifest], beside: Sequence[Step]) -> int:
        for name, chunk in made.chunks:
            try:
                await self.records.create(chunk_path(self.log, name), chunk.encode())
            except NoRecord:
                raise self.gone() from None
            except RecordExists:  # an earlier try of this very create
                continue
        steps: list[Step] = [Check(chunk_path(self.log, name), ANY) for name, _ in made.chunks]
        data = edits.encoded(made.manifest)
        steps.append(Write(self.path, data, current.version))
        try:
            versions = await self.records.multi([*steps, *beside])
        except NoRecord as error:
            if error.step == len(made.chunks):
                self.known = None
                raise self.gone() from None
            if error.step < len(made.chunks):  # the upkeep took it for one that nobody names
                changed = RecordChanged(str(error))
                changed.step = len(made.chunks)
                raise changed from None
            raise
        self.counters.known(made.manifest, len(data))
        return versions[len(made.chunks)]

    def _full(self, error: MetadataTooLarge) -> LogFull:
        """Makes the error of an edit that the metadata store finds too large."""
        return LogFull(
            f"the manifest of the log {self.name!r} can't be changed so, it would be too large: {error}; "
            f"`quire log tidy {self.name}` makes room, and so does a trim"
        )

    async def _drop(self, made: Made) -> None:
        """Removes the chunks of a try that can't take effect any more, for the version that it named has moved."""
        for name, _ in made.chunks:
            with suppress(RecordError):
                await self.records.delete(chunk_path(self.log, name), ANY)


async def create_log(
    records: Records,
    name_path: str,
    log: str,
    manifest: bytes,
    name: bytes,
    lease: bytes,
    children: Mapping[str, bytes],
    beside: Sequence[Step] = (),
) -> None:
    """
    Makes a log, folders, child records and name in one step, with the steps `beside`.  `RecordExists`: the name is
    taken, or an earlier try did it.
    """
    path = log_path(log)
    folders = (*PARTS, CHILD) if children else PARTS
    made = [Create(child_path(log, child), value) for child, value in children.items()]
    await records.folder(path.rpartition("/")[0])
    await records.folder(name_path.rpartition("/")[0])
    await records.multi(
        [
            Create(name_path, name),
            Create(path, manifest),
            Create(f"{path}/lease", lease),
            *(Create(f"{path}/{folder}") for folder in folders),
            *made,
            *beside,
        ]
    )
