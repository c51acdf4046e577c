"""Writes store directories from the formats alone: what an export would do."""
import json
import pathlib
import struct

from tests.messages.reference import parser


class Builder:
    def __init__(self, store, size=65536, first=0, rule="plain", port=10911):
        self.host = (b"\x7f\0\0\1", port)  # part of message ids: a broker must listen there to answer by them
        self.store, self.size, self.end, self.rule = pathlib.Path(store), size, first, rule
        self.next, self.records, self.data = {}, [], {}
        self.index, self.term = 0, 1
        self.units = []
        self.store.mkdir(parents=True, exist_ok=True)

    def place(self, size):
        over = 48 if self.rule == "dledger" else 0
        left = self.size - self.end % self.size
        if over + size + 8 > left:
            blank = struct.pack(">II", left, parser.BLANK) if self.rule == "plain" else struct.pack(">iI", -1, left)
            self.write(self.end, blank)
            self.end += left
        return self.end + over

    def write(self, at, data):
        start = at - at % self.size
        self.data.setdefault(start, bytearray(self.size))[at - start:at - start + len(data)] = data

    def put(self, topic, body=b"", *, queue=0, queue_offset=None, step=1, **fields):
        fields.setdefault("store", self.host)
        size = len(parser.pack(topic, body, queue=queue, **fields))
        at = self.place(size)
        if queue_offset is None:
            queue_offset = self.next.get((topic, queue), 0)
            self.next[(topic, queue)] = queue_offset + step
        record = parser.pack(topic, body, queue=queue, queue_offset=queue_offset, offset=at, **fields)
        return self.raw(at, record)

    def copy(self, record):
        """A record from elsewhere, as it is but for its place."""
        at = self.place(record["size"])
        return self.raw(at, record["raw"][:28] + struct.pack(">q", at) + record["raw"][36:])

    def raw(self, at, record):
        if self.rule == "dledger":
            head = parser.ENTRY.pack(1, 48 + len(record), self.index, self.term, at - 48, 0, 0, 0, len(record))
            self.write(at - 48, head)
            self.units.append(parser.ENTRY_UNIT.pack(1, at - 48, 48 + len(record), self.index, self.term))
            self.index += 1
        self.write(at, record)
        self.end = at + len(record)
        found = parser.unpack(record)
        self.records.append((at, found))
        return at, found

    def close(self, group="dledger-n0", index_units=5 * 1024 * 1024, topics=None):
        if self.rule == "plain":
            directory = self.store / "commitlog"
        else:
            directory = self.store / group / "data"
        directory.mkdir(parents=True, exist_ok=True)
        for start, data in self.data.items():
            (directory / f"{start:020d}").write_bytes(data)
        if self.rule == "dledger":
            rows = self.store / group / "index"
            rows.mkdir(exist_ok=True)
            with (rows / f"{0:020d}").open("wb") as out:
                out.write(b"".join(self.units))
                out.truncate(32 * index_units)
        if topics is not None:
            config = self.store / "config"
            config.mkdir(exist_ok=True)
            table = {name: {"topicName": name, "readQueueNums": queues, "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, "attributes": {}}
                     for name, queues in topics.items()}
            (config / "topics.json").write_text(json.dumps({"dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1700000000000}, "topicConfigTable": table}))

    def checkpoint(self, physical=0, queue=0, index=0, flushed=0, confirmed=0):
        (self.store / "checkpoint").write_bytes(struct.pack(">qqqqq", physical, queue, index, flushed, confirmed).ljust(4096, b"\0"))

    def queues(self, file_bytes=2000):
        """consumequeue/ as a broker would write it."""
        rows = {}
        for at, record in self.records:
            if parser.transaction(record) in (0, 8):
                rows.setdefault((record["topic"], record["queue"]), []).append((record["queue_offset"], at, record["size"], parser.tags_code(record)))
        for (topic, queue), units in rows.items():
            directory = self.store / "consumequeue" / topic / str(queue)
            directory.mkdir(parents=True, exist_ok=True)
            data = {}
            first = units[0][0] * 20
            start = first - first % file_bytes
            data[start] = bytearray(parser.UNIT.pack(0, 0x7FFFFFFF, 0) * ((first - start) // 20)).ljust(file_bytes, b"\0")
            for number, at, size, code in units:
                place = number * 20
                begin = place - place % file_bytes
                data.setdefault(begin, bytearray(file_bytes))[place - begin:place - begin + 20] = parser.UNIT.pack(at, size, code)
            for begin, content in data.items():
                (directory / f"{begin:020d}").write_bytes(content)
