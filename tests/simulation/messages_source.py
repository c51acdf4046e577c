"""
Store directories of brokers, in memory, for imports in a history; and what a broker makes of them, by itself.

The records are made by the reference (`tests/messages/reference`), which shares no code with what is judged.
"""

import struct
from random import Random
from typing import Any, NamedTuple

from quire.messages.rocketmq.source import Name, Tree
from tests.messages.reference import parser
from tests.messages.reference.builder import Builder

ROOT, GROUP = "/source", "dledger-n0"
FILE_BYTES = 2048
HOST = (b"\x0a\0\0\x05", 10911)
STORE_MS = 1_000_000  # of the first record; the world's clocks begin a thousand times later
Queue = tuple[str, int]


class Placed(NamedTuple):
    """A value of a log: the byte position at which it is, its bytes, and those of the record in it."""

    at: int
    value: bytes
    record: dict[str, Any]

    @property
    def offset(self) -> int:
        """Where the record is, by its place."""
        return self.at + len(self.value) - int(self.record["size"])

    @property
    def queue(self) -> Queue:
        return self.record["topic"], self.record["queue"]


def placed(at: int, value: bytes) -> Placed:
    """`parser.Bad` for a value that is neither a record nor an entry with one."""
    if value[:4] == b"\0\0\0\1":
        size, place, length = struct.unpack_from(">i", value, 4)[0], struct.unpack_from(">q", value, 24)[0], len(value)
        if (size, place) != (length, at):
            raise parser.Bad(f"the entry at {at} says that it has {size} bytes at {place}")
        return Placed(at, value, parser.unpack(value, 48))
    record = parser.unpack(value)
    if record["size"] != len(value):
        raise parser.Bad(f"the record at {at} has {record['size']} of {len(value)} bytes")
    return Placed(at, value, record)


class MemoryBuilder(Builder):
    """Nothing is written anywhere; `fillers` apart from the records."""

    def __init__(self, first: int, rule: str) -> None:
        self.host = HOST
        self.size, self.end, self.rule = FILE_BYTES, first, rule
        self.next: dict[Queue, int] = {}
        self.records: list[tuple[int, dict[str, Any]]] = []
        self.data: dict[int, bytearray] = {}
        self.index, self.term = 0, 1
        self.units: list[bytes] = []

    def seal(self) -> None:
        """The rest of the last file is a filler."""
        left = self.size - self.end % self.size
        self.write(self.end, struct.pack(">II", left, parser.BLANK))
        self.end += left


class Source:
    """One directory.  `files`: by path; `values`: in the order of the log; `positions`: of each record in its queue."""

    def __init__(self, rng: Random) -> None:
        self.kind = rng.choice(("plain", "plain", "sealed", "dledger", "upgraded"))
        self.files: dict[str, bytes] = {f"{ROOT}/abort": b"", f"{ROOT}/config/topics.json": b"{}"}
        self.values: list[Placed] = []
        self.offsets = {("again", "T", 0): rng.randint(0, 9)}
        self.next: dict[Queue, int] = {}
        self.positions: dict[int, int] = {}  # by offset, of those that have one
        self.begin = FILE_BYTES * rng.choice((0, 0, 3, 1 << 30))
        self._rng = rng
        self._given: dict[Queue, int] = {}  # the queue offset that a record of the queue had last
        end = self.begin
        if self.kind != "dledger":
            end = self._fill(MemoryBuilder(end, "plain"), f"{ROOT}/commitlog", self.kind != "plain")
        if self.kind in ("dledger", "upgraded"):
            self._fill(MemoryBuilder(end, "dledger"), f"{ROOT}/{GROUP}/data", False)
        if rng.random() < 0.5:
            self._expired()
        table = ",".join(f'"{topic}@{group}":{{{queue}:{at}}}' for (group, topic, queue), at in self.offsets.items())
        self.files[f"{ROOT}/config/consumerOffset.json"] = f'{{"offsetTable":{{{table}}}}}'.encode()
        # what an import makes of them: no consumer is ahead of a queue that is there
        self.offsets = {each: min(at, self.next.get(each[1:], at)) for each, at in self.offsets.items()}

    @property
    def end(self) -> int:
        """Behind the last value."""
        return self.values[-1].at + len(self.values[-1].value)

    @property
    def region(self) -> int:
        """Where new records may begin: behind DLedger's, and behind a file that is sealed, with the next file."""
        return self.end if self.kind == "plain" else -(-self.end // FILE_BYTES) * FILE_BYTES

    @property
    def batches(self) -> list[list[bytes]]:
        """The values of each file."""
        files: dict[int, list[bytes]] = {}
        for each in self.values:
            files.setdefault(each.at // FILE_BYTES, []).append(each.value)
        return list(files.values())

    def _fill(self, builder: MemoryBuilder, folder: str, seal: bool) -> int:
        for _ in range(self._rng.randint(2, 14)):
            self._put(builder)
        if seal:
            builder.seal()
        for start, data in builder.data.items():
            self.files[f"{folder}/{start:020d}"] = bytes(data)
        return builder.end

    def _put(self, builder: MemoryBuilder) -> None:
        rng = self._rng
        queue = rng.choice(("T", "T", "U")), rng.randint(0, 1)
        prepared = rng.random() < 0.1
        before = self._given.get(queue)
        if before is None:
            number = rng.choice((0, 0, 7, 1 << 40))
        elif rng.random() < 0.85:
            number = before + 1
        else:  # a hole that a broker never filled, or a number that it gave twice
            number = max(0, before + rng.choice((-1, 0, 3)))
        count = len(self.values)
        offset, record = builder.put(
            queue[0],
            b"old.%d." % count + b"x" * rng.choice((0, 40, 300)),
            queue=queue[1],
            queue_offset=0 if prepared else number,
            sys_flag=4 if prepared else 0,
            store_ms=STORE_MS + count,
            properties=b"UNIQ_KEY\x01OLD%d\x02KEYS\x01%s\x02" % (count, rng.choice((b"Aa", b"BB", b"k1 k2"))),
        )
        over = 48 if builder.rule == "dledger" else 0
        self.values.append(placed(offset - over, self._bytes(builder, offset - over, offset + record["size"])))
        if prepared:
            return
        self._given[queue] = number
        held = self.next.get(queue)
        if held is None or number >= held or not number:
            # a gap closes up; of two with one number the earlier one stays, but one of 0 comes behind the last
            self.positions[offset] = number if held is None else held
            self.next[queue] = self.positions[offset] + 1

    def _bytes(self, builder: MemoryBuilder, begin: int, end: int) -> bytes:
        start = begin - begin % FILE_BYTES
        return bytes(builder.data[start][begin - start : end - start])

    def _expired(self) -> None:
        """A queue whose messages are all gone: only its file says where it goes on."""
        next_ = self._rng.randint(3, 9)
        unit = parser.UNIT.pack(0, 0x7FFFFFFF, 0) * (next_ - 1) + parser.UNIT.pack(max(0, self.begin - 500), 100, 0)
        self.files[f"{ROOT}/consumequeue/E/0/{0:020d}"] = unit.ljust(2000, b"\0")
        self.next["E", 0] = next_


class MemoryTree(Tree):
    """Those files, and a lock that nobody has."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__()
        self._files = files

    def names(self, path: str) -> list[Name]:
        found: dict[str, Name] = {}
        for each, data in self._files.items():
            if each.startswith(f"{path}/"):
                name, *more = each[len(path) + 1 :].split("/")
                found[name] = Name(name, bool(more), 0 if more else len(data))
        return sorted(found.values())

    def size(self, path: str) -> int | None:
        data = self._files.get(path)
        return None if data is None else len(data)

    def read(self, path: str, at: int, count: int) -> bytes:
        return self._files[path][at : at + count]

    def holder(self, path: str) -> int | None:
        return None
