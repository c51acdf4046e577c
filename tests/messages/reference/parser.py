#!/usr/bin/env python3
"""RocketMQ's store files, read and written from their formats alone: no code of RocketMQ or quire.

    python -m tests.messages.reference.parser show STORE                 # records, fillers, units, index rows, headers
    python -m tests.messages.reference.parser check STORE [--slots 1000]  # every derived file compared with what the commit log says

Big-endian throughout. `log(store)` gives records in order of their offsets, plain and DLedger parts alike.
"""

import argparse
import json
import pathlib
import struct
import sys
import zlib

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
HEAD, UNIT, BATCH_UNIT = struct.Struct(">qiiiqqiq"), struct.Struct(">qiq"), struct.Struct(">qiqqqhii")
INDEX_HEAD, INDEX_ROW = struct.Struct(">qqqqii"), struct.Struct(">iqii")
ENTRY, ENTRY_UNIT = struct.Struct(">iiqqqiiii"), struct.Struct(">iqiqq")


class Bad(Exception):
    pass


# The record

def java_hash(text):
    value = 0
    raw = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(raw), 2):
        value = (31 * value + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def key_hash(text):
    value = abs(java_hash(text))
    return 0 if value == 1 << 31 else value


def properties(data):
    pairs = {}
    for piece in data.decode("utf-8", "surrogatepass").split("\x02"):
        if "\x01" in piece:
            name, value = piece.split("\x01", 1)
            pairs[name] = value
    return pairs


def pack(topic, body=b"", *, queue=0, flag=0, queue_offset=0, offset=0, sys_flag=0, born_ms=0, born=(b"\x7f\0\0\1", 1234), store_ms=0,
         store=(b"\x7f\0\0\1", 10911), reconsume=0, prepared=0, properties=b"", crc_property=False, version=None):
    topic, version = topic.encode(), version or (V2 if len(topic) > 127 else V1)
    sys_flag |= (0x10 if len(born[0]) == 16 else 0) | (0x20 if len(store[0]) == 16 else 0)
    if crc_property and properties and not properties.endswith(b"\x02"):
        properties += b"\x02"
    total = len(properties) + (20 if crc_property else 0)
    out = b"".join([
        struct.pack(">IIIiiqqiq", 0, version, zlib.crc32(body) & 0x7FFFFFFF, queue, flag, queue_offset, offset, sys_flag, born_ms),
        born[0], struct.pack(">i", born[1]), struct.pack(">q", store_ms), store[0], struct.pack(">i", store[1]), struct.pack(">iqi", reconsume, prepared, len(body)), body,
        struct.pack(">b" if version == V1 else ">h", len(topic)), topic, struct.pack(">h", total), properties])
    size = len(out) + (20 if crc_property else 0)
    out = struct.pack(">I", size) + out[4:]
    if crc_property:
        number = zlib.crc32(out) & 0x7FFFFFFF
        out += b"__CRC32#\x01" + f"{number:010d}"[::-1].encode() + b"\x02"
    return out


def unpack(data, at=0):
    """One record as a dict; Bad if it is none."""
    if at + 8 > len(data):
        raise Bad("no room")
    size, magic = struct.unpack_from(">II", data, at)
    if magic not in (V1, V2):
        raise Bad(f"magic {magic:08x}")
    if size < 91 or at + size > len(data):
        raise Bad(f"size {size}")
    crc, queue, flag, queue_offset, offset, sys_flag, born_ms = struct.unpack_from(">IiiqqiQ", data, at + 8)
    place = at + 48
    born_host = data[place:place + (16 if sys_flag & 0x10 else 4)]
    place += len(born_host)
    born_port, store_ms = struct.unpack_from(">iq", data, place)
    place += 12
    store_host = data[place:place + (16 if sys_flag & 0x20 else 4)]
    place += len(store_host)
    store_port, reconsume, prepared, length = struct.unpack_from(">iiqi", data, place)
    place += 20
    body = bytes(data[place:place + length])
    place += length
    if magic == V1:
        topic_length, place = struct.unpack_from(">b", data, place)[0], place + 1
    else:
        topic_length, place = struct.unpack_from(">h", data, place)[0], place + 2
    topic = bytes(data[place:place + topic_length]).decode()
    place += topic_length
    count = struct.unpack_from(">h", data, place)[0]
    raw = bytes(data[place + 2:place + 2 + count])
    place += 2 + count
    if place != at + size:
        raise Bad(f"lengths add up to {place - at}, size says {size}")
    if zlib.crc32(body) & 0x7FFFFFFF != crc and length:
        raise Bad("body CRC")
    found = properties(raw)
    if "__CRC32#" in found:
        number = zlib.crc32(data[at:at + size - 20]) & 0x7FFFFFFF
        if int(found["__CRC32#"][::-1]) != number:
            raise Bad("CRC property")
    return {"size": size, "version": 1 if magic == V1 else 2, "body_crc": crc, "queue": queue, "flag": flag, "queue_offset": queue_offset, "offset": offset,
            "sys_flag": sys_flag, "born_ms": born_ms, "born_host": (bytes(born_host).hex(), born_port), "store_ms": store_ms,
            "store_host": (bytes(store_host).hex(), store_port), "reconsume": reconsume, "prepared": prepared, "body": body, "topic": topic,
            "raw_properties": raw, "properties": found, "raw": bytes(data[at:at + size])}


def message_id(record):
    host, port = record["store_host"]
    return f"{host}{port:08x}{record['offset']:016x}".upper()


def transaction(record):
    return record["sys_flag"] & 0xC


DELAYS = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def tags_code(record):
    found = record["properties"]
    level = found.get("DELAY")
    if record["topic"] == "SCHEDULE_TOPIC_XXXX" and level:
        return record["store_ms"] + DELAYS[min(int(level), 18) - 1] * 1000
    return java_hash(found.get("TAGS", ""))


# Files

def files(directory):
    return sorted(path for path in pathlib.Path(directory).iterdir() if path.name.isdigit()) if pathlib.Path(directory).is_dir() else []


def plain(directory):
    """(kind, offset, value): record, filler, zeros, bad."""
    for path in files(directory):
        data, start, at = path.read_bytes(), int(path.name), 0
        while at < len(data):
            left, magic = struct.unpack_from(">II", data, at) if at + 8 <= len(data) else (0, 0)
            if magic == BLANK:
                yield "filler", start + at, left
                break
            try:
                record = unpack(data, at)
            except Bad as why:
                yield ("zeros" if not any(data[at:at + 64]) else "bad"), start + at, str(why)
                break
            yield "record", start + at, record
            at += record["size"]


def dledger(directory):
    """(kind, place of the entry, header, record)."""
    for path in files(directory):
        data, start, at = path.read_bytes(), int(path.name), 0
        while at < len(data):
            magic, size = struct.unpack_from(">iI", data, at) if at + 8 <= len(data) else (0, 0)
            if magic == -1:
                yield "filler", start + at, size, None
                break
            if magic not in (1, 2, 3) or size < 48:
                yield ("zeros" if not any(data[at:at + 64]) else "bad"), start + at, (magic, size), None
                break
            head = dict(zip(("magic", "size", "index", "term", "pos", "channel", "chain", "body_crc", "length"), ENTRY.unpack_from(data, at)))
            body = data[at + 48:at + 48 + head["length"]]
            try:
                record = unpack(body)
            except Bad as why:
                record = str(why)
            yield "entry", start + at, head, record
            at += size


def parts(store):
    store = pathlib.Path(store)
    return store / "commitlog", sorted(store.glob("dledger-*"))


def log(store):
    """(offset, record) of everything, in order."""
    old, groups = parts(store)
    for kind, at, value in plain(old):
        if kind == "record":
            yield at, value
    for group in groups:
        for kind, at, _head, record in dledger(group / "data"):
            if kind == "entry" and isinstance(record, dict):
                yield at + 48, record


def units(directory):
    """(queue offset, physical, size, tags code) of one queue's files, up to the unwritten rest."""
    for path in files(directory):
        data, start = path.read_bytes(), int(path.name)
        for at in range(0, len(data) - 19, 20):
            physical, size, code = UNIT.unpack_from(data, at)
            if size == 0 and physical == 0:
                break
            yield (start + at) // 20, physical, size, code


def index(path, slots):
    """Header and rows (number, hash, physical, seconds, previous)."""
    data = path.read_bytes()
    head = dict(zip(("begin_ms", "end_ms", "begin", "end", "slots", "count"), INDEX_HEAD.unpack_from(data)))
    rows = [(n, *INDEX_ROW.unpack_from(data, 40 + 4 * slots + 20 * n)) for n in range(1, (len(data) - 40 - 4 * slots) // 20)]
    while rows and not any(rows[-1][1:]):
        rows.pop()
    table = struct.unpack_from(f">{slots}i", data, 40)
    return head, rows, table


def checkpoint(path):
    return dict(zip(("physical_ms", "queue_ms", "index_ms", "master_flushed", "confirmed"), struct.unpack_from(">qqqqq", path.read_bytes())))


# What the derived files must be

def dispatched(store):
    """Queues {(topic, queue): [(queue offset, physical, size, code)]} and index keys [(hash, physical, store time, text)] by the commit log."""
    queues, keys = {}, []
    for at, record in log(store):
        found = record["properties"]
        if transaction(record) in (0, 8) and "INNER_NUM" not in found:
            queues.setdefault((record["topic"], record["queue"]), []).append((record["queue_offset"], at, record["size"], tags_code(record)))
        if transaction(record) != 0xC:
            for key in [found.get("UNIQ_KEY")] + [key for key in found.get("KEYS", "").split(" ")]:
                if key:
                    keys.append((key_hash(f"{record['topic']}#{key}"), at, record["store_ms"], f"{record['topic']}#{key}"))
    return queues, keys


def check(store, slots=1000):
    store = pathlib.Path(store)
    report, trouble = {}, []
    old, groups = parts(store)
    last = None
    for path in [old, *(group / "data" for group in groups)]:
        for found in files(path):
            report.setdefault("files", []).append(f"{found.parent.parent.name}/{found.parent.name}/{found.name}:{found.stat().st_size}")
    size = files(old)[0].stat().st_size if files(old) else files(groups[0] / "data")[0].stat().st_size
    kinds = {}
    for kind, at, value in plain(old):
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == "record":
            if value["offset"] != at:
                trouble.append(f"record at {at} says {value['offset']}")
            if at % size + value["size"] + 8 > size:
                trouble.append(f"record at {at} takes part of the last 8 bytes")
            repacked = pack(value["topic"], value["body"], queue=value["queue"], flag=value["flag"], queue_offset=value["queue_offset"], offset=value["offset"],
                            sys_flag=value["sys_flag"], born_ms=value["born_ms"], born=(bytes.fromhex(value["born_host"][0]), value["born_host"][1]), store_ms=value["store_ms"],
                            store=(bytes.fromhex(value["store_host"][0]), value["store_host"][1]), reconsume=value["reconsume"], prepared=value["prepared"],
                            properties=value["raw_properties"], version=V1 if value["version"] == 1 else V2)
            if repacked != value["raw"]:
                trouble.append(f"record at {at} is not what pack makes")
            if last is not None and at // size == last[0] // size and at != last[0] + last[1]:
                trouble.append(f"gap before {at}")
            last = (at, value["size"])
        elif kind == "filler":
            if value != size - at % size:
                trouble.append(f"filler at {at} says {value}")
            report.setdefault("fillers", []).append((at, value))
        elif kind == "bad":
            trouble.append(f"at {at}: {value}")
        else:
            report["end"] = at
    report["commitlog"] = kinds
    for group in groups:
        kinds, expected, previous = {}, None, None
        rows = b"".join(path.read_bytes() for path in files(group / "index"))
        for kind, at, head, record in dledger(group / "data"):
            kinds[kind] = kinds.get(kind, 0) + 1
            if kind == "entry":
                kinds[f"magic {head['magic']}"] = kinds.get(f"magic {head['magic']}", 0) + 1
                if head["pos"] != at or head["size"] != 48 + head["length"] or head["channel"] or head["chain"] or head["body_crc"]:
                    trouble.append(f"entry at {at}: {head}")
                if expected is not None and head["index"] != expected:
                    trouble.append(f"entry at {at}: index {head['index']}, expected {expected}")
                expected = head["index"] + 1
                if isinstance(record, dict):
                    if record["offset"] != at + 48:
                        trouble.append(f"record at {at + 48} says {record['offset']}")
                else:
                    kinds[f"no record ({record})"] = kinds.get(f"no record ({record})", 0) + 1
                if at % size + head["size"] + 8 > size:
                    trouble.append(f"entry at {at} takes part of the last 8 bytes")
                first = int(files(group / "index")[0].name) // 32
                unit = ENTRY_UNIT.unpack_from(rows, 32 * (head["index"] - first))
                if unit != (head["magic"], head["pos"], head["size"], head["index"], head["term"]):
                    trouble.append(f"index unit {head['index']}: {unit}")
                report.setdefault("terms", {})[head["term"]] = report.setdefault("terms", {}).get(head["term"], 0) + 1
                previous = at
            elif kind == "filler":
                report.setdefault("dledger fillers", []).append((at, head))
                if head != size - at % size:
                    trouble.append(f"filler at {at} says {head}")
            elif kind == "bad":
                trouble.append(f"at {at}: {head}")
            else:
                report["dledger end"] = at
        report[group.name] = kinds
        for name in ("currterm", "checkpoint"):
            if (group / name).exists():
                report[f"{group.name}/{name}"] = (group / name).read_text()
    queues, keys = dispatched(store)
    seen = set()
    for topic in sorted((store / "consumequeue").iterdir()) if (store / "consumequeue").is_dir() else []:
        for queue in sorted(topic.iterdir()):
            have = list(units(queue))
            want = queues.get((topic.name, int(queue.name)), [])
            seen.add((topic.name, int(queue.name)))
            if have != want:
                blanks = [row for row in have if row[1:] == (0, 0x7FFFFFFF, 0)]
                rest = [row for row in have if row[1:] != (0, 0x7FFFFFFF, 0)]
                report.setdefault("queue differs", []).append(f"{topic.name}/{queue.name}: file {len(rest)} (+{len(blanks)} blank) log {len(want)}"
                                                              + (" same but blanks" if rest == want else f" file-only {[r for r in rest if r not in want][:3]} log-only {[r for r in want if r not in rest][:3]}"))
    for name in sorted(set(queues) - seen):
        report.setdefault("queues without files", []).append(f"{name[0]}/{name[1]}: {len(queues[name])}")
    report["queues equal"] = sum(1 for name in seen if name in queues) - len(report.get("queue differs", []))
    rows, begin = [], None
    for path in files(store / "index"):
        head, found, table = index(path, slots)
        report.setdefault("index", []).append((path.name, head, len(found), path.stat().st_size))
        rows += [(head["begin_ms"], *row) for row in found]
        chains = {}
        for number, code, physical, seconds, before in found:
            slot = code % slots
            if before != chains.get(slot, 0):
                trouble.append(f"index row {number}: previous {before}, expected {chains.get(slot, 0)}")
            chains[slot] = number
        if {slot: number for slot, number in enumerate(table) if number} != chains:
            trouble.append("index slots differ from the chains")
    have = [(code, physical) for _begin, _n, code, physical, _s, _p in rows]
    want = [(code, physical) for code, physical, _ms, _text in keys]
    report["index rows"] = f"file {len(have)} log {len(want)} " + ("equal in order" if have == want else "equal as sets" if sorted(set(have)) == sorted(set(want)) else
                                                                f"differ: file-only {[r for r in have if r not in want][:4]} log-only {[k for k in keys if k[:2] not in have][:6]}")
    times = {at: ms for _c, at, ms, _t in keys}
    wrong = [row for row in rows if row[3] in times and row[4] != max(0, (times[row[3]] - row[0]) // 1000)]
    report["index seconds wrong"] = len(wrong)
    if (store / "checkpoint").exists():
        report["checkpoint"] = checkpoint(store / "checkpoint")
    report["abort"] = (store / "abort").exists()
    report["trouble"] = trouble
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["show", "check"])
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--slots", type=int, default=1000)
    options = parser.parse_args()
    if options.command == "check":
        json.dump(check(options.path, options.slots), sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    old, groups = parts(options.path)
    for kind, at, value in plain(old):
        print(kind, at, value if not isinstance(value, dict) else {k: v for k, v in value.items() if k not in ("raw", "body", "raw_properties")})
    for group in groups:
        for kind, at, head, record in dledger(group / "data"):
            print(kind, at, head, record if not isinstance(record, dict) else {k: v for k, v in record.items() if k not in ("raw", "body", "raw_properties")})


if __name__ == "__main__":
    main()
