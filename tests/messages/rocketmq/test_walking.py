"""Where a log ends: torn tails, zeros, fillers, damage in the middle; every byte of the last record, random bytes."""

import os
import random
import struct

import pytest

from quire.messages.descriptor import Region
from quire.messages.rocketmq.source import Tree
from quire.protocol.message_errors import ImportRefused
from tests.messages.archives import BROKERS, unpack
from tests.messages.reference import parser
from tests.messages.rocketmq.made import FILE_BYTES, entries, log_file, overwrite, plain, plan_of

# SPDX-License-Identifier: Apache-2.0

PROPERTIES = b"KEYS\x01k1 k2\x02TAGS\x01a\x02"
CHANGES = 30 * int(os.environ.get("ROUNDS", "1"))  # of a single byte, in each archive


def refused(root, **options):
    with pytest.raises(ImportRefused) as failure:
        plan_of(root, **options)
    return failure.value


def values_of(plan):
    """(place, bytes) of each value that an import would take."""
    found = []
    for each in plan.files:
        with Tree() as tree:
            data = tree.read(each.file.path, 0, each.end - each.file.begin)
        at = 0
        while at < len(data):
            size = struct.unpack_from(">I", data, at + (4 if each.file.rule == "dledger" else 0))[0]
            found.append((each.file.begin + at, data[at : at + size]))
            at += size
        assert at == len(data)
    return found


@pytest.mark.parametrize("rule", ["plain", "dledger"])
def test_a_last_record_that_is_torn_at_each_byte(tmp_path, rule):
    """Its first bytes, then zeros: the end is before it; nothing is left out where all of them are zeros."""
    folder = "commitlog" if rule == "plain" else "dledger-n0/data"
    root = tmp_path / "a"
    builder = plain(root, range(3), properties=PROPERTIES) if rule == "plain" else entries(root, [1, 1, 2])
    extra = 0 if rule == "plain" else 48
    start = builder.records[2][0] - extra
    size = builder.end - start
    whole = log_file(root, start, folder=folder).read_bytes()[start : builder.end]
    for kept in range(size):
        overwrite(root, start, whole[:kept] + bytes(size - kept), folder=folder)
        left = whole[:kept].rstrip(b"\0")
        if not left or left == whole.rstrip(b"\0"):
            plan = plan_of(root)
            assert (plan.end, plan.records, plan.torn) == ((builder.end, 3, None) if left else (start, 2, None))
            continue
        failure = refused(root)
        assert (failure.why, failure.file) == ("TornTail", str(log_file(root, start, folder=folder)))
        assert failure.offset == start + next(n for n, byte in enumerate(left) if byte)
        assert f"the log ends at {start}" in str(failure)
        plan = plan_of(root, accept_tail=True)
        assert (plan.end, plan.records, plan.torn) == (start, 2, failure.offset)
    overwrite(root, start, whole, folder=folder)
    assert plan_of(root).end == builder.end


def test_files_of_zeros_behind_the_end(tmp_path):
    """They are no part of the log; a byte in one is a torn tail there, an empty last file is nothing."""
    builder = plain(tmp_path / "a", range(3))
    for number in (1, 2):
        log_file(tmp_path / "a", number * FILE_BYTES).write_bytes(bytes(FILE_BYTES))
    log_file(tmp_path / "a", 3 * FILE_BYTES).write_bytes(b"")
    plan = plan_of(tmp_path / "a")
    assert (plan.end, len(plan.files), plan.torn) == (builder.end, 1, None)
    overwrite(tmp_path / "a", 2 * FILE_BYTES + 77, b"\1")
    failure = refused(tmp_path / "a")
    assert (failure.why, failure.offset) == ("TornTail", 2 * FILE_BYTES + 77)
    assert failure.file == str(log_file(tmp_path / "a", 2 * FILE_BYTES))
    assert plan_of(tmp_path / "a", accept_tail=True).end == builder.end


@pytest.mark.parametrize("rule", ["plain", "dledger"])
def test_a_sealed_last_file(tmp_path, rule):
    """New records begin behind its filler, and behind a file that is one filler."""
    root = tmp_path / "a"
    folder = "commitlog" if rule == "plain" else "dledger-n0/data"
    builder = plain(root, range(3)) if rule == "plain" else entries(root, [1, 1, 1])

    def filler(left):
        return struct.pack(">II", left, parser.BLANK) if rule == "plain" else struct.pack(">iI", -1, left)

    overwrite(root, builder.end, filler(FILE_BYTES - builder.end) + b"undefined", folder=folder)
    plan = plan_of(root)
    assert (plan.end, plan.regions[-1]) == (builder.end, Region(FILE_BYTES, "plain"))
    log_file(root, FILE_BYTES, folder=folder).write_bytes(filler(FILE_BYTES).ljust(FILE_BYTES, b"\7"))
    plan = plan_of(root)
    assert (plan.end, plan.regions[-1]) == (builder.end, Region(2 * FILE_BYTES, "plain"))
    assert len(plan.files) == 1


def test_a_filler_that_says_another_length(tmp_path):
    """It is none: what is behind it makes it damage in the middle."""
    builder = plain(tmp_path / "a", range(60))
    fillers = [at for kind, at, _left in parser.plain(tmp_path / "a/commitlog") if kind == "filler"]
    overwrite(tmp_path / "a", fillers[0], struct.pack(">I", FILE_BYTES - fillers[0] % FILE_BYTES + 1))
    failure = refused(tmp_path / "a")
    assert (failure.why, failure.offset) == ("DamagedMiddle", fillers[0])
    assert failure.file == str(log_file(tmp_path / "a", 0))
    following = next(at for at, _record in builder.records if at > fillers[0])
    assert f"the next one is at {following} in {log_file(tmp_path / 'a', following)}" in str(failure)


def test_entries_that_a_truncation_left_over(tmp_path):
    """Of a term below the last one: they do not count, but are no zeros; of the same term they are the middle."""
    for terms, why in (([1, 3, 2, 2], "TornTail"), ([3, 3, 3, 3], "DamagedMiddle")):
        root = tmp_path / str(terms[0])
        builder = entries(root, terms)
        place = builder.records[2][0] - 48
        if terms[1] == terms[2]:
            overwrite(root, place, b"\0\0\0\2", folder="dledger-n0/data")
            overwrite(root, place + 24, b"\1", folder="dledger-n0/data")
        failure = refused(root)
        assert (failure.why, plan_of(root, end=place).records) == (why, 2)
        assert failure.offset in (place, place + 3)


def test_damage_before_the_border_of_an_upgrade(tmp_path):
    """Entries behind a plain file that is damaged at its end are the next valid ones."""
    root = unpack("upgraded-clean", tmp_path)
    last = [at for at, _record in parser.log(root) if at < 196608][-1]
    overwrite(root, last + 100, b"\xff\xff", 65536)
    failure = refused(root)
    assert (failure.why, failure.offset, failure.file) == ("DamagedMiddle", last, str(log_file(root, last, 65536)))
    assert "the next one is at 196608 in" in str(failure)


def has_no_sum(value, at):
    """True if a byte of a record is in a field that nothing in the format checks."""
    if at < 0:
        return -48 + 16 <= at < -48 + 24  # the term of an entry
    body = struct.unpack_from(">i", value, 84)[0]
    topic = value[88 + body]
    fields = [(12, 28), (36, 84), (89 + body, 89 + body + topic), (91 + body + topic, len(value))]
    return any(begin <= at < end for begin, end in fields)


@pytest.mark.parametrize("name", BROKERS)
def test_single_bytes_that_are_changed(tmp_path, name):
    """
    Each is found, or is in no value, or is one of those that the format has no sum for, and then it is read as it is
    stored; all other values are read as before.
    """
    draw = random.Random(f"{name} 39")
    root = unpack(name, tmp_path)
    before = plan_of(root)
    values, found = values_of(before), 0
    files = [file for file in before.source.files if file.size]
    for _change in range(CHANGES):
        file, at = draw.choice(files), draw.randrange(files[0].size)
        with open(file.path, "r+b") as changed:
            changed.seek(at)
            byte = changed.read(1)
            changed.seek(at)
            changed.write(bytes([byte[0] ^ draw.randrange(1, 256)]))
        plan, refusal = None, None
        try:
            plan = plan_of(root)
        except ImportRefused as error:
            refusal = error
        if plan is None:
            assert refusal.why in ("TornTail", "DamagedMiddle", "Unsupported")
            assert refusal.file
            assert refusal.offset >= 0
            found += 1
        else:
            after = values_of(plan)
            differ = [(place, old, new) for (place, old), (_at, new) in zip(values, after, strict=True) if old != new]
            assert [place for place, _value in after] == [place for place, _value in values]
            for place, old, new in differ:
                extra = 48 if old[:4] == b"\0\0\0\1" else 0
                assert place <= file.begin + at < place + len(old)
                assert has_no_sum(old[extra:], file.begin + at - place - extra)
                assert new[file.begin + at - place] != old[file.begin + at - place]
            if not differ:
                assert plan.fingerprint == before.fingerprint
        with open(file.path, "r+b") as changed:
            changed.seek(at)
            changed.write(byte)
    assert found
    assert plan_of(root) == before
