"""
The plan of an import: all that is known of a source before anything is created (docs/messages.md, "Import").

Knows: which replica is taken, where regions begin, what a broker would make of the queues, the fingerprint.
Does not know: stores and logs.
Safety: a plan is made only of a source that is taken whole, or with what its user said may be left out.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from quire.conf.messages import address_text
from quire.messages.core.layout import ENTRY_HEADER_BYTES
from quire.messages.core.record import Flag, Record, unpack
from quire.messages.core.scan import Seen
from quire.messages.descriptor import IMPORTING, MEMBERS_MAX, Descriptor, Next, Region, Shift
from quire.messages.progress import Consumed
from quire.messages.rocketmq.documents import consumed_in
from quire.messages.rocketmq.queue_files import QueuesOfSource
from quire.messages.rocketmq.replicas import chosen
from quire.messages.rocketmq.source import DocumentFile, Kind, LogFile, Source, Tree, Wanted, open_source
from quire.messages.rocketmq.walking import WalkedFile, Walker, Window
from quire.protocol.message_errors import ImportRefused

# SPDX-License-Identifier: Apache-2.0

REPORTS_MAX = 100
DESCRIPTOR_BYTES_MAX = 700 << 10  # without settings, which is less than a record of the metadata may have
LIGHT_QUEUES = "INNER_MULTI_DISPATCH"  # a property of records that light queues (LMQ) hold, too
UNSEEN = -1  # no record of the queue was met yet
PREPARED = int(Flag.PREPARED)  # a rollback record has this bit, too; a plain int takes a tenth of the time
BEHIND = -2  # the queue's rows are above what its records say, so each is looked at

Told = Callable[[int, int], None]  # (bytes done, bytes in all)


@dataclass(slots=True)
class QueueState:
    """One queue while its records are gone through in the order of the log."""

    records: int = 0
    bytes: int = 0  # of values
    expected: int = UNSEEN  # the queue offset of the next record if nothing is unusual
    shift: int = 0
    held: int = 0  # the next position, where `expected` is BEHIND
    last: int = -1  # physical offset of the last record that has a row

    @property
    def next(self) -> int:
        """The next position."""
        return 0 if self.expected == UNSEEN else self.held if self.expected == BEHIND else self.expected - self.shift


@dataclass(frozen=True, slots=True)
class Plan:
    """
    An import before it is done.  `begin`, `end`: of the records in the offset space; `files`: those that have values,
    or are between such; `queues`: the next position of each.  `address`: the store host of the last record, "" without
    one.  `torn`: the first byte behind the end that is not zero and is left out; None: there is none.
    """

    source: Source
    regions: tuple[Region, ...]
    begin: int
    end: int
    files: tuple[WalkedFile, ...]
    records: int
    value_bytes: int
    topics: dict[str, tuple[int, int]]
    queues: dict[tuple[str, int], int]
    next: tuple[Next, ...]
    shifts: tuple[Shift, ...]
    doubles: tuple[int, ...]
    store_ms: int
    address: str
    torn: int | None
    reports: tuple[str, ...]
    offsets: dict[Consumed, int] = field(repr=False)
    fingerprint: str

    @property
    def kind(self) -> Kind:
        return self.source.kind

    @property
    def file_bytes(self) -> int:
        return self.source.file_bytes

    @property
    def documents(self) -> tuple[DocumentFile, ...]:
        return self.source.documents

    def ledgers(self, roll_bytes: int) -> int:
        """How many ledgers the values need: each file has its own."""
        return sum(-(-(each.end - each.file.begin) // roll_bytes) for each in self.files)

    def as_json(self) -> dict[str, Any]:
        """Gives what `quire messages import --dry-run --json` prints."""
        return {
            "source": self.source.root,
            "kind": self.kind,
            "clean": self.source.is_clean,
            "file_bytes": self.file_bytes,
            "regions": [{"begin": each.begin, "rule": each.rule, "group": each.group} for each in self.regions],
            "begin": self.begin,
            "end": self.end,
            "files": len(self.files),
            "records": self.records,
            "bytes": self.value_bytes,
            "topics": {name: {"records": count, "bytes": size} for name, (count, size) in self.topics.items()},
            "queues": [{"topic": topic, "queue": queue, "next": n} for (topic, queue), n in self.queues.items()],
            "next": [[each.topic, each.queue, each.position] for each in self.next],
            "shifts": [[each.topic, each.queue, each.offset, each.by] for each in self.shifts],
            "doubles": list(self.doubles),
            "address": self.address,
            "torn": self.torn,
            "reports": list(self.reports),
            "documents": {each.name: each.size for each in self.documents},
            "offsets": len(self.offsets),
            "fingerprint": self.fingerprint,
        }


def make_plan(tree: Tree, wanted: Wanted, told: Told = lambda _done, _total: None, *, in_use: bool = False) -> Plan:
    """
    Reads the source.  `told`: bytes read, and all.  `in_use`: also one that a broker has, which may change meanwhile.
    `ImportRefused`; `ValueError` for an end inside a value; `OSError` when a file can't be read.
    """
    if not wanted.roots:
        raise ValueError("an import needs a store directory, or several of one DLedger group")
    sources = [open_source(tree, root, wanted.commit_logs) for root in wanted.roots]
    if not in_use:
        for each in sources:
            each.check_unused()
    plan = _Planning(tree, chosen(tree, sources, wanted), wanted, told).plan()
    held = [
        f"{each.root} is locked by process {each.holder}: it may change, and an import refuses it until the broker has "
        "stopped"
        for each in sources
        if each.holder is not None
    ]
    return replace(plan, reports=(*held, *plan.reports)) if held else plan


class _Planning:
    """One plan while it is made."""

    def __init__(self, tree: Tree, source: Source, wanted: Wanted, told: Told) -> None:
        self._tree = tree
        self._source = source
        self._wanted = wanted
        self._told = told
        self._done = 0
        self._total = sum(file.size for file in source.files)
        self._queues: dict[tuple[str, int], QueueState] = {}
        self._rows = QueuesOfSource(tree, source)
        self._shifts: list[Shift] = []
        self._doubles: list[int] = []
        self._next: list[Next] = []
        self._reports: list[str] = []
        self._light = 0  # records of light queues
        self._store_ms = 0
        self._last: tuple[LogFile, int, int] | None = None  # file, place and size of the last value

    def plan(self) -> Plan:
        source = self._source
        walker = Walker(self._tree, source, self._wanted.end, self._progress)
        for window in walker.windows():
            self._take(window)
        torn = walker.check_tail(self._wanted.accept_tail)
        self._told(self._total, self._total)
        offsets = self._offsets()
        records = sum(each.records for each in walker.walked)
        last = self._last_record()
        self._compare_queues(walker.end)
        if self._light:
            self._report(f"{self._light} records are of light queues (LMQ), too: rows of these are not made")
        regions = _regions(source, walker)
        self._check_size(regions)
        topics: dict[str, tuple[int, int]] = {}
        for (topic, _queue), state in sorted(self._queues.items()):
            count, size = topics.get(topic, (0, 0))
            topics[topic] = count + state.records, size + state.bytes
        positions = {name: state.next for name, state in self._queues.items() if state.expected != UNSEEN}
        positions |= {(each.topic, each.queue): each.position for each in self._next}
        offsets = self._lowered(offsets, positions)
        return Plan(
            source,
            regions,
            source.files[0].begin,
            walker.end,
            tuple(walker.walked),
            records,
            sum(state.bytes for state in self._queues.values()),
            topics,
            dict(sorted(positions.items())),
            tuple(self._next),
            tuple(self._shifts),
            tuple(self._doubles),
            self._store_ms,
            "" if last is None else address_text(*last.store_host),
            torn,
            self._told_reports(),
            offsets,
            fingerprint(source, walker.walked),
        )

    def _progress(self, count: int) -> None:
        self._done += count
        self._told(self._done, self._total)

    def _take(self, window: Window) -> None:
        """The records of a window, each in its queue."""
        queues, store_ms = self._queues, self._store_ms
        base, over = window.place, ENTRY_HEADER_BYTES if window.file.rule == "dledger" else 0
        at = size = -1
        for seen in window.values:
            at, size, topic, queue, queue_offset, flags, stored, is_plain = seen
            state = queues.get((topic, queue))
            if state is None:
                state = queues[topic, queue] = QueueState()
            state.records += 1
            state.bytes += size
            if queue_offset == state.expected and is_plain and not flags & PREPARED:
                state.expected += 1
                state.last = base + at + over
            else:
                self._take_unusual(window, state, seen, over)
            if stored > store_ms:  # noqa: PLR1730  # half the time of `max`
                store_ms = stored
        self._store_ms = store_ms
        if size > 0:
            self._last = window.file, base + at, size

    def _take_unusual(self, window: Window, state: QueueState, seen: Seen, over: int) -> None:
        """A queue's first record, one that does not follow the one before, and those that have several positions."""
        at, _size, topic, queue, queue_offset, flags, _stored, is_plain = seen
        offset, positions = window.place + at + over, 1
        if not is_plain:
            record = unpack(window.data[at + over : at + seen[1]])
            properties = record.properties
            self._light += LIGHT_QUEUES in properties
            positions = record.positions()
        if flags & PREPARED:
            return
        if state.expected == UNSEEN:
            units = self._rows.get(topic, queue)
            unit = None if units is None else units.of_record(offset)
            position = queue_offset if unit is None else unit.position
        elif 0 < queue_offset < state.next:  # a broker does not look at those of 0, and puts them behind the last
            self._doubles.append(offset)
            self._check_members(window.file, offset)
            return
        else:
            position = state.next
        shift = queue_offset - position
        if shift != state.shift:
            state.shift = shift
            self._shifts.append(Shift(topic, queue, offset, shift))
            self._check_members(window.file, offset)
        state.held = position + positions
        state.expected = queue_offset + positions if shift >= 0 else BEHIND
        state.last = offset

    def _check_members(self, file: LogFile | None, offset: int) -> None:
        count = len(self._shifts) + len(self._doubles) + len(self._next)
        if count > MEMBERS_MAX:
            raise ImportRefused(
                "Unsupported",
                f"more than {MEMBERS_MAX} records or queues are not where their queue offset says: such queues can't "
                "be kept",
                file="" if file is None else file.path,
                offset=offset,
            )

    def _check_size(self, regions: tuple[Region, ...]) -> None:
        """A descriptor is one record of the metadata."""
        made = Descriptor(
            (), IMPORTING, {}, regions, next=(*self._next,), shifts=(*self._shifts,), doubles=(*self._doubles,)
        )
        size = len(made.encode())
        if size > DESCRIPTOR_BYTES_MAX:
            raise ImportRefused(
                "Unsupported",
                f"what is unusual about its queues takes {size} bytes of metadata, and at most {DESCRIPTOR_BYTES_MAX} "
                "can be kept",
                file=self._source.root,
            )

    def _compare_queues(self, end: int) -> None:
        """The last row of each queue that has files, and queues whose records are all gone."""
        for (topic, queue), units in self._rows:
            state = self._queues.get((topic, queue))
            last = units.last(end)
            if state is None or state.expected == UNSEEN:
                if last is not None and last.next > 0:
                    self._next.append(Next(topic, queue, last.next))
                    self._check_members(None, -1)
                continue
            where = f"queue {queue} of {topic!r}: its files"
            if last is None:
                self._report(f"{where} have no row, the log has {state.records} records: the log counts")
            elif last.offset == state.last and last.next != state.next:
                self._report(
                    f"{where} end with position {last.next - 1}, the log with {state.next - 1}: the log counts"
                )
            elif last.offset < state.last:
                self._report(
                    f"{where} end with position {last.next - 1} at {last.offset}, the log with {state.next - 1} at "
                    f"{state.last}: the log counts"
                )
            elif last.offset > state.last:
                self._report(f"{where} have a row for {last.offset}, where the log has none of it: the log counts")

    def _report(self, text: str) -> None:
        self._reports.append(text)

    def _told_reports(self) -> tuple[str, ...]:
        more = len(self._reports) - REPORTS_MAX
        return (*self._reports[:REPORTS_MAX], *((f"and {more} more such",) if more > 0 else ()))

    def _offsets(self) -> dict[Consumed, int]:
        try:
            return consumed_in(self._tree, self._source.documents)
        except ValueError as error:
            self._report(f"consumerOffset.json is not understood: it is kept, but no consumer has a position: {error}")
            return {}

    def _lowered(self, offsets: dict[Consumed, int], positions: dict[tuple[str, int], int]) -> dict[Consumed, int]:
        """
        The offsets of consumers, none above its queue's next position, where the queue is known: a consumer that is
        ahead of what is left of its queue would miss all that is put below.
        """
        known = dict.fromkeys((name for name, _units in self._rows), 0) | positions
        found = dict(offsets)
        for consumed, offset in offsets.items():
            most = known.get((consumed.topic, consumed.queue), offset)
            if offset > most:
                found[consumed] = most
                self._report(
                    f"group {consumed.group!r} had consumed queue {consumed.queue} of {consumed.topic!r} up to "
                    f"{offset}, and the queue ends at {most}: it goes on there"
                )
        return found

    def _last_record(self) -> Record | None:
        if self._last is None:
            return None
        file, place, size = self._last
        over = ENTRY_HEADER_BYTES if file.rule == "dledger" else 0
        return unpack(self._tree.read(file.path, place - file.begin + over, size - over))


def _regions(source: Source, walker: Walker) -> tuple[Region, ...]:
    """The last region takes new records: it is plain, and begins in a file of its own behind DLedger's or a filler."""
    begin = source.files[0].begin
    regions = []
    plain = [each for each in walker.walked if each.file.rule == "plain"]
    entries = [each for each in walker.walked if each.file.rule == "dledger"]
    if plain or not entries:
        regions.append(Region(begin, "plain"))
    if entries:
        regions.append(Region(entries[0].file.begin, "dledger", source.group))
    if walker.end > begin or walker.sealed >= 0:
        behind = -(-walker.end // source.file_bytes) * source.file_bytes
        if walker.sealed >= 0 or entries:
            regions.append(Region(max(behind, walker.sealed), "plain"))
    if len(regions) > 1 and regions[0].begin == regions[1].begin:
        del regions[0]
    return tuple(regions)


def fingerprint(source: Source, walked: Sequence[WalkedFile]) -> str:
    """The sum of what is imported: the same for the same bytes."""
    summed = hashlib.blake2b(digest_size=32)
    for each in walked:
        summed.update(f"{each.file.name} {each.end - each.file.begin} {each.crc:08x}\n".encode())
    return summed.hexdigest()
