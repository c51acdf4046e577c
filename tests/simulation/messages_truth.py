"""
What really happened to a message store, seen from outside, and M1 to M6 of docs/messages.md that are held against it.

Records are read by the reference out of what bookies stored: positions of queues, offsets, places in files.  What
callers were told, what readers were given and what lay in rows is kept, and compared with all that once the log is
closed.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from quire.metadata.ledger import LedgerMetadata
from tests.messages.reference import parser
from tests.simulation.log_records import Change, Content, NotALog, content
from tests.simulation.log_truth import Json, LogTruth
from tests.simulation.messages_source import Placed, Queue, Source, placed
from tests.simulation.nodes import World

CHECKPOINT = struct.Struct(">H16sQqI")
QUEUE_ROW, KEY_ROW, ENTRY_ROW, BOUNDS_ROW = (struct.Struct(form) for form in (">qiqqH", ">ciq", ">QQQI", ">qq"))
Rows = Mapping[bytes, bytes]


class Sent(NamedTuple):
    """A message as it was put: by whom, as which of that one's, and in which place of a group of how many."""

    who: str
    number: int
    topic: str
    queue: int
    body: bytes
    size: int  # of its record
    place: int = 0
    group: tuple[int, ...] = ()  # the sizes of all of the group


class Row(NamedTuple):
    """A record of the log, and its position in its queue; None: it has none."""

    index: int  # type: ignore[assignment]  # tuple has a method of that name, which nobody needs here
    found: Placed
    position: int | None


class Crashed(NamedTuple):
    """The rows that a machine had left when its process ended."""

    who: str
    rows: dict[bytes, bytes]


class Offers(dict[tuple[str, int], list[list[bytes]]]):
    """What a batch of an import may publish: the nth one has the values of the nth file."""

    def __init__(self, source: Source | None) -> None:
        super().__init__()
        self._files = [] if source is None else source.batches

    def get(self, key: tuple[str, int], default: Any = None) -> Any:
        return [self._files[key[1]]] if key[1] < len(self._files) else default


class MessageTruth(LogTruth):
    """One store's; the log of its progress is none of its."""

    def __init__(self, world: World, source: Source | None, file_bytes: int, begin: int) -> None:
        self.source = source
        self.file_bytes = file_bytes
        self.begin_at = begin  # byte position of the first record
        self.stored: dict[int, tuple[int, bytes]] = {}  # index -> position and value, of closed segments
        self.descriptor: Json | None = None
        self.sent: dict[str, Sent] = {}  # by unique id
        self.told: dict[str, Any] = {}  # by unique id: what a caller was told
        self.seen_messages: dict[int, tuple[int, bytes, str, str]] = {}  # by offset: position, record, id, by whom
        self.masters: dict[int, str] = {}  # epoch -> who was its master
        self.crashed: list[Crashed] = []
        self.next: dict[Queue, int] = {}  # position of each queue, once the log was read
        self._decoded: dict[int, tuple[int, Content]] = {}
        super().__init__(world)
        self.offers = Offers(source)

    # -- records of the metadata store -----------------------------------------------------------------------------

    def changed(self, changes: list[Change]) -> None:
        """Of the store's log alone, which is the one that is made with a descriptor."""
        for change in changes:
            folders = change.path.split("/")
            if folders[0] == "logs" and folders[3:] == ["child", "store"] and change.after is not None:
                self.path = self.path or "/".join(folders[:3])
                self.descriptor = change.after
        mine = [change for change in changes if self.path and change.path.startswith(self.path)]
        super().changed(mine)
        if mine:
            self._check_ready()

    def _check_ready(self) -> None:
        """A ready store takes no published ledgers, and has all of its source."""
        if self.descriptor is None or self.manifest is None or self.descriptor["state"] != "ready":
            return
        if self.manifest["settings"].get("publish", True):
            self.break_("publish", "the store is ready, and its log takes published ledgers")
        source = self.source
        if source is not None and len(self.archive) < len(source.values):
            self.break_("import", f"the store is ready with {len(self.archive)} of {len(source.values)} records")
        regions = self.descriptor["regions"]
        if source is not None and source.kind != "plain" and regions[-1]["begin"] != source.region:
            self.break_(
                "place", f"new records begin at {regions[-1]}, behind {source.kind} they belong at {source.region}"
            )

    @property
    def is_ready(self) -> bool:
        return self.descriptor is not None and self.descriptor["state"] == "ready"

    def _counted(self, segment: Json, counts: Json) -> None:
        super()._counted(segment, counts)
        metadata = self.metadata(segment["ledger"])
        if metadata is not None and metadata.is_closed:
            found = self.held(segment)
            self.stored.update(enumerate(found.places(segment["at"]), segment["first"]))

    def _gone(self, ledger: int, metadata: LedgerMetadata) -> None:
        if self.world.makers.get(ledger) == self.world.deleter:  # an import that failed drops the part that it wrote
            self.dropped.add(ledger)
        super()._gone(ledger, metadata)

    # -- what is acknowledged --------------------------------------------------------------------------------------

    def _now(self, ledger: int) -> Content:
        """What the entries of a ledger hold that bookies know by now, acknowledged or not."""
        payloads = self.truth.ledgers[ledger].payloads
        count = next(number for number in range(len(payloads) + 1) if number not in payloads)
        known = self._decoded.get(ledger)
        if known is None or known[0] != count:
            try:
                known = count, content([payloads[number] for number in range(count)])
            except NotALog as error:
                self.break_("format", f"ledger {ledger}: {error!r}")
                known = count, Content([], [], 0)
            self._decoded[ledger] = known
        return known[1]

    def _acknowledged(self, segment: Json, ordinal: int) -> bool:
        """Whether the entry with this record of a segment is on an ack quorum, or in a closed ledger."""
        ledger = segment["ledger"]
        metadata: LedgerMetadata | None = self.metadata(ledger)
        ends = self._now(ledger).ends
        if metadata is None or not ends or ordinal >= ends[-1]:
            return metadata is None
        entry = bisect_right(ends, ordinal)
        if metadata.is_closed:
            return entry <= metadata.last_entry
        truth = self.truth.ledgers[ledger]
        return all(len(truth.holders(each, metadata)) >= truth.ack for each in range(entry + 1))

    def _check_acknowledged(self, who: str, index: int) -> None:
        """`who` knows of the record with that index."""
        segments = [each for each in self._ever.values() if each["first"] <= index]
        last = max(segments, key=lambda each: int(each["first"]), default=None)
        if last is None or ("records" not in last and not self._acknowledged(last, index - last["first"])):
            self.break_("M4", f"{who} has rows of record {index}, which is not acknowledged")

    def end(self) -> int:
        """The byte position behind the last record that a bookie has."""
        last = max(self._ever.values(), key=lambda each: int(each["n"]), default=None)
        if last is None:
            return self.begin_at
        places = list(self._now(last["ledger"]).places(last["at"]))
        return places[-1][0] + len(places[-1][1]) if places else int(last["at"])

    def put(self, messages: Mapping[str, Sent]) -> None:
        self.sent.update(messages)

    def put_told(self, unique_id: str, put: Any) -> None:
        """A put was answered: its entry is acknowledged, and holds that."""
        self.told[unique_id] = put
        if put.unique_id != unique_id:
            self.break_("M3", f"a put of {unique_id} was told of {put.unique_id}")
        for segment in self._ever.values():
            places = self._now(segment["ledger"]).places(segment["at"]) if "records" not in segment else ()
            for ordinal, (at, value) in enumerate(places):
                if at == put.offset and parser.unpack(value)["properties"].get("UNIQ_KEY") == unique_id:
                    if not self._acknowledged(segment, ordinal):
                        self.break_("M3", f"{put} was told while its entry is not acknowledged")
                    return
        if not any(at == put.offset for at, _value in self.stored.values()):
            self.break_("M3", f"{put} was told, and nothing is at its offset")

    def wrote_rows(self, who: str, puts: Iterable[tuple[bytes, bytes]]) -> None:
        """One write into the rows of a process."""
        for key, value in puts:
            if key == b"d":
                self._check_acknowledged(who, CHECKPOINT.unpack(value)[2] - 1)

    # -- what readers are given, who leads -------------------------------------------------------------------------

    def saw_message(self, who: str, message: Any) -> None:
        given = message.position, message.raw, message.message_id
        before = self.seen_messages.setdefault(message.offset, (*given, who))
        if before[:3] != given:
            self.break_("M4", f"{who} was given {given} at {message.offset}; {before[3]} {before[:3]}")

    def became(self, who: str, role: str, epoch: int, before: list[tuple[str, int]]) -> None:
        """A store was told of its role."""
        last = before[-1] if before else ("slave", 0)
        if role == last[0] or epoch < last[1] or (role == "master" and epoch == last[1]):
            self.break_("roles", f"{who} is {role} of epoch {epoch} after {last}")
        if role == "master" and self.masters.setdefault(epoch, who) != who:
            self.break_("roles", f"{who} is master of epoch {epoch}, as was {self.masters[epoch]}")
        before.append((role, epoch))

    # -- the reckoning ---------------------------------------------------------------------------------------------

    def records(self) -> list[Row]:
        """All records of the log, trimmed ones, too, and their positions by the reference.  Breaks M1 and M2."""
        rows: list[Row] = []
        source = self.source
        imported = [] if source is None else source.values
        next_ = {} if source is None else dict(source.next)
        end, store_ms = self.begin_at, 0
        group: list[Sent] = []
        if sorted(self.stored) != list(range(len(self.stored))):
            self.break_("dense", f"of the log there are the records {sorted(self.stored)}")
            return rows
        for index, (at, value) in sorted(self.stored.items()):
            try:
                found = placed(at, value)
            except parser.Bad as error:
                self.break_("M2", f"record {index} at {at} is damaged: {error}")
                return rows
            record = found.record
            if record["offset"] != found.offset:
                self.break_("M2", f"the record at {found.offset} says {record['offset']}")
            if index < len(imported):
                if (at, value) != imported[index][:2]:
                    self.break_("import", f"record {index} at {at} is not that of the source at {imported[index].at}")
                assert source is not None
                rows.append(Row(index, found, source.positions.get(found.offset)))
            else:
                if not group:
                    expected = self._place(end, found)
                    if at != expected:
                        self.break_("place", f"record {index} of {len(value)} bytes is at {at}, not {expected}")
                elif at != end:
                    self.break_("place", f"record {index} is at {at}, those of its group end at {end}")
                group = self._grouped(index, record, group)
                position = next_.get(found.queue, 0)
                if record["queue_offset"] != position:
                    self.break_("M1", f"record {index} is at {record['queue_offset']} in {found.queue}, not {position}")
                next_[found.queue] = record["queue_offset"] + 1
                rows.append(Row(index, found, record["queue_offset"]))
            if record["store_ms"] < store_ms:
                self.break_("store time", f"record {index} has {record['store_ms']} behind {store_ms}")
            store_ms, end = max(store_ms, record["store_ms"]), at + len(value)
        if group:
            self.break_("group", f"the log ends inside a group, behind {group[-1]}")
        self.next = next_
        return rows

    def _place(self, end: int, found: Placed) -> int:
        """Where a record belongs, or a group that begins with it."""
        sent = self.sent.get(found.record["properties"].get("UNIQ_KEY", ""))
        size = sum(sent.group) if sent is not None and sent.group else len(found.value)
        end = max(end, 0 if self.descriptor is None else self.descriptor["regions"][-1]["begin"])
        left = self.file_bytes - end % self.file_bytes
        return end + left if left < size + 8 else end

    def _grouped(self, index: int, record: dict[str, Any], group: list[Sent]) -> list[Sent]:
        """Those of a group that came by now; none once it is whole."""
        sent = self.sent.get(record["properties"].get("UNIQ_KEY", ""))
        if sent is None:
            self.break_("one sequence", f"record {index} was put by nobody: {record['properties']}")
            return []
        asked = (sent.topic, sent.queue, sent.body, sent.size)
        if asked != (record["topic"], record["queue"], record["body"], record["size"]):
            self.break_("one sequence", f"record {index} is not what was put: {sent}")
        if sent.place != len(group) or (group and group[-1].number != sent.number - 1):
            self.break_("group", f"record {index} is {sent} behind {group}")
        return [*group, sent] if sent.place + 1 < len(sent.group) else []

    def judge(self, rows: Sequence[Row], begin_at: int, denied: Mapping[str, str]) -> None:
        """All that anybody was told, against the whole log; `begin_at`: where it begins."""
        by_id: dict[str, Row] = {}
        last: dict[str, int] = {}
        for row in rows:
            record = row.found.record
            unique = record["properties"].get("UNIQ_KEY", "")
            if unique in self.sent:
                if unique in by_id:
                    self.break_("once", f"{unique} is in the log twice")
                by_id[unique] = row
                sent = self.sent[unique]
                if sent.number <= last.get(sent.who, -1):
                    self.break_("order", f"{sent} is behind number {last[sent.who]}")
                last[sent.who] = sent.number
                if unique in denied:
                    self.break_("answered", f"{sent} is in the log, its put failed with {denied[unique]}")
        for unique, put in self.told.items():
            row_of = by_id.get(unique)
            if row_of is None:
                self.break_("M3", f"{put} was told, and is not in the log")
                continue
            record = row_of.found.record
            found = (
                row_of.found.offset, row_of.position, parser.message_id(record), record["store_ms"], record["size"],
                unique,
            )  # fmt: skip
            if tuple(put) != found:
                self.break_("M3", f"{put} was told, the log has {found}")
        by_offset = {row.found.offset: row for row in rows}
        for offset, (position, raw, id_, who) in self.seen_messages.items():
            there = by_offset.get(offset)
            wanted = None
            if there is not None:
                record = there.found.record
                wanted = (-1 if there.position is None else there.position), record["raw"], parser.message_id(record)
            if wanted != (position, raw, id_):
                self.break_("M4", f"{who} was given {(position, raw, id_)} at {offset}, there is {wanted}")
        for crashed in self.crashed:
            self.judge_rows(crashed.who, crashed.rows, rows, begin_at)

    def judge_rows(self, who: str, found: Rows, rows: Sequence[Row], begin_at: int, is_whole: bool = False) -> None:
        """Rows are those of all records below their checkpoint; of keys a write may be ahead."""
        checkpoint = found.get(b"d")
        index = 0 if checkpoint is None else CHECKPOINT.unpack(checkpoint)[2]
        if is_whole and index != len(rows):
            self.break_("M4", f"the rows of {who} end at record {index}, the log at {len(rows)}")
        if index > len(rows):
            self.break_("M4", f"the rows of {who} know record {index - 1}, the log ends at {len(rows) - 1}")
        queues: dict[bytes, bytes] = {}
        keys: dict[bytes, bytes] = {}
        kept: set[bytes] = set()
        next_: dict[bytes, int] = {}
        for row in rows:
            record = row.found.record
            here = keys_of(record)
            if row.index < index and row.found.offset >= begin_at:
                kept.update(here)
            keys.update(here)
            if row.position is None or row.index >= index:
                continue
            name = _queue(row.found.queue)
            key = b"q" + name + struct.pack(">q", row.position)
            queues[key] = QUEUE_ROW.pack(
                row.found.offset, record["size"], parser.tags_code(record), record["store_ms"], 1
            )
            next_[b"m" + name] = row.position + 1
            if row.found.offset >= begin_at:
                kept.add(key)
        wanted = {**queues, **keys}
        for key, value in found.items():
            if key[:1] in (b"q", b"k") and wanted.get(key) != value:
                self.break_("M4", f"{who} has the row {key!r} of {value.hex()}, the log has {wanted.get(key)!r}")
            elif key[:1] == b"m" and BOUNDS_ROW.unpack(value)[1] != next_.get(key):
                self.break_("M4", f"{who} has the bounds {key!r} of {value.hex()}, next is {next_.get(key)}")
            elif key[:1] == b"o":
                self._judge_entry(who, key, value, rows)
        if missing := sorted(kept - found.keys()):
            self.break_("M4", f"{who} lacks {len(missing)} rows, {missing[0]!r} among them, below record {index}")

    def _judge_entry(self, who: str, key: bytes, value: bytes, rows: Sequence[Row]) -> None:
        first, records = ENTRY_ROW.unpack(value)[2:]
        at = struct.unpack(">q", key[1:])[0]
        if not records or first + records > len(rows) or rows[first].found.at != at:
            self.break_("M4", f"{who} has an entry of the records {first} to {first + records - 1} at {at}")


def _queue(queue: Queue) -> bytes:
    topic = queue[0].encode()
    return struct.pack(">H", len(topic)) + topic + struct.pack(">i", queue[1])


def keys_of(record: dict[str, Any]) -> dict[bytes, bytes]:
    """The rows of its keys."""
    if parser.transaction(record) == 0xC:
        return {}
    properties = record["properties"]
    words = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return {
        KEY_ROW.pack(b"k", parser.key_hash(f"{record['topic']}#{word}"), ~record["offset"]): struct.pack(
            ">q", record["store_ms"]
        )
        for word in words
        if word
    }
