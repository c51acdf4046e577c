"""Plans: what the archives hold, what a broker would make of odd queues, and each refusal with file and offset."""

import json
import random
import struct

import pytest

from quire.messages.core.record import unpack as unpacked
from quire.messages.descriptor import Descriptor, Import, Next, Region, Shift
from quire.messages.rocketmq.plan import make_plan
from quire.messages.rocketmq.source import Tree, Wanted
from quire.protocol.message_errors import ImportRefused
from tests.messages.archives import BROKERS, DLEDGER, UPGRADED, answers, unpack
from tests.messages.archives import FILE_BYTES as ARCHIVE_FILE_BYTES
from tests.messages.reference import parser
from tests.messages.rocketmq.made import FILE_BYTES, log_file, overwrite, plain, plan_of, written_queue

# SPDX-License-Identifier: Apache-2.0


def refused(why, *roots, **options):
    with pytest.raises(ImportRefused, match=why) as failure:
        plan_of(*roots, **options)
    assert failure.value.why == why
    return failure.value


def placed(plan, records):
    """The positions of records as the queue table gives them with what a plan found."""
    imported = Import("", plan.fingerprint, len(plan.files), plan.records, plan.end, 0)
    descriptor = Descriptor(
        (), "ready", {}, plan.regions, imported, next=plan.next, shifts=plan.shifts, doubles=plan.doubles
    )
    found = []
    for at, record in records:
        place = descriptor.placing.place(unpacked(record["raw"]), at)
        found.append(None if place is None else place.position)
    return found


@pytest.mark.parametrize("name", BROKERS)
def test_what_the_archives_hold(tmp_path, name):
    """Records, bytes, end, regions and the next position of every queue as the reference and the queue files say."""
    root = unpack(name, tmp_path)
    plan = plan_of(root)
    records = list(parser.log(root))
    entry = {
        at: 48 if at >= (plan.source.divided if plan.source.divided is not None else plan.end) else 0
        for at, _ in records
    }
    assert (plan.records, plan.value_bytes) == (len(records), sum(entry[at] + each["size"] for at, each in records))
    assert plan.end == records[-1][0] + records[-1][1]["size"]
    last = records[-1][1]
    assert plan.address == ".".join(map(str, bytes.fromhex(last["store_host"][0]))) + f":{last['store_host'][1]}"
    assert plan.store_ms == max(each["store_ms"] for _at, each in records)
    assert (plan.torn, plan.reports, plan.next, plan.shifts, plan.doubles) == (None, (), (), (), ())
    queues, _keys = parser.dispatched(root)
    expected = {key: rows[-1][0] + 1 for key, rows in queues.items()}
    if name.startswith("plain"):
        expected["I", 0] = 4  # an inner batch of four
    assert plan.queues == expected
    for (topic, queue), position in expected.items():
        if topic != "I":
            assert len(list(parser.units(root / "consumequeue" / topic / str(queue)))) == position
    json.dumps(plan.as_json())


def test_regions_of_the_archives(tmp_path):
    """Behind DLedger's, new records begin in a file of their own."""
    regions = {name: plan_of(unpack(name, tmp_path)).regions for name in BROKERS}
    assert regions["plain-clean"] == regions["plain-killed"] == (Region(0, "plain"),)
    for name in UPGRADED:
        assert regions[name] == (Region(0, "plain"), Region(196608, "dledger", "dledger-n0"), Region(327680, "plain"))
    assert regions["dledger-killed-leader"] == (Region(0, "dledger", "dledger-n1"), Region(262144, "plain"))
    assert regions["dledger-new-leader"] == (Region(0, "dledger", "dledger-n2"), Region(327680, "plain"))


def test_the_end_is_not_what_the_checkpoint_says(tmp_path):
    """103 entries, all acknowledged, where the killed leader's checkpoint says 52; 113 of two terms on the other."""
    assert plan_of(unpack(DLEDGER[0], tmp_path)).records == 103
    root = unpack(DLEDGER[1], tmp_path)
    assert plan_of(root).records == 113
    assert [each["id"] for each in answers("dledger")[DLEDGER[1]]["records"]] == [
        parser.message_id(record) for _at, record in parser.log(root)
    ]


@pytest.mark.parametrize("name", BROKERS)
def test_the_next_positions_are_those_that_the_peer_went_on_with(tmp_path, name):
    """Where the same broker was started again, its next records of a queue are at the plan's next positions."""
    follows = {"plain-clean": "plain-killed", "upgraded-clean": "upgraded-killed"}
    after = follows.get(name)
    if after is None:
        after = name
    plan = plan_of(unpack(name, tmp_path))
    later = [record for at, record in parser.log(unpack(after, tmp_path)) if at >= plan.end]
    first: dict[tuple[str, int], int] = {}
    for record in later:
        first.setdefault((record["topic"], record["queue"]), record["queue_offset"])
    assert {key: plan.queues[key] for key in first} == first


@pytest.mark.parametrize(
    ("offsets", "positions"),
    [
        ([0, 1, 2, 5, 6], [0, 1, 2, 3, 4]),
        ([0, 1, 2, 1, 2, 3], [0, 1, 2, None, None, 3]),
        ([7, 8, 12, 10, 9, 13], [7, 8, 9, 10, None, 11]),
        ([0, 5, 1, 2, 3], [0, 1, None, 2, 3]),
        ([1 << 40, (1 << 40) + 1], [1 << 40, (1 << 40) + 1]),
        ([0, 1, 1, 2, 0, 3, 4, 0], [0, 1, None, 2, 3, None, 4, 5]),  # a broker does not look at those of 0
        ([7, 0, 8, 9], [7, 8, None, 9]),
    ],
)
def test_gaps_close_up_and_doubles_have_no_position(tmp_path, offsets, positions):
    """As a broker builds a queue: a gap is not left open, and the earlier of two stays."""
    builder = plain(tmp_path / "a", offsets)
    plan = plan_of(tmp_path / "a")
    found = placed(plan, builder.records)
    assert found == positions
    assert plan.queues == {("T", 0): max(each for each in positions if each is not None) + 1}


def test_random_queues_are_what_a_broker_builds(tmp_path):
    """Gaps, doubles, prepared and rollback records, several queues: against a broker's rule, written naively."""
    for seed in range(20):
        draw = random.Random(seed)
        root = tmp_path / str(seed)
        builder = plain(root, [], first=FILE_BYTES * draw.choice([0, 3, 1 << 30]))
        after: dict[int, int] = {}
        for number in range(draw.randrange(1, 60)):
            queue = draw.randrange(3)
            offset = max(0, after.get(queue, draw.randrange(10)) + draw.choice([0, 0, 0, 0, 1, 5, -1, -3]))
            after[queue] = offset + 1
            flag = draw.choice([0, 0, 0, 0, 4, 8, 12])
            builder.put("T", b"%d" % number, queue=queue, queue_offset=offset, sys_flag=flag)
        builder.close()
        expected, table = [], {}
        for _at, record in builder.records:
            queue, offset = record["queue"], record["queue_offset"]
            if record["sys_flag"] & 0xC in (4, 12) or 0 < offset < table.get(queue, 0):
                expected.append(None)
                continue
            position = table.get(queue, offset)
            expected.append(position)
            table[queue] = position + 1
        plan = plan_of(root)
        found = placed(plan, builder.records)
        assert found == expected
        assert plan.queues == {("T", queue): position for queue, position in table.items()}


def test_a_first_record_whose_row_is_elsewhere(tmp_path):
    """The queue's file says where; what follows is placed behind it."""
    builder = plain(tmp_path / "a", [10, 11, 12, 15], first=FILE_BYTES * 7)
    rows = [(at, record["size"]) for at, record in builder.records]
    written_queue(tmp_path / "a", rows, first=8)
    plan = plan_of(tmp_path / "a")
    begin = FILE_BYTES * 7
    assert plan.shifts == (Shift("T", 0, begin, 2), Shift("T", 0, rows[3][0], 4))
    assert placed(plan, builder.records) == [8, 9, 10, 11]
    assert plan.queues == {("T", 0): 12}
    assert plan.reports == ()


def test_a_queue_whose_records_have_all_expired(tmp_path):
    """Its next position is behind its last unit; units at or above the end of the log do not count."""
    first = 5_000_000_000_000 - 5_000_000_000_000 % FILE_BYTES
    plain(tmp_path / "a", [(1 << 40) + each for each in range(3)], first=first)
    written_queue(
        tmp_path / "a", [(first - 500 + 100 * n, 90) for n in range(4)], name="consumequeue/gone/3", first=339
    )
    written_queue(tmp_path / "a", [(first + (1 << 20), 90)], name="consumequeue/future/0")
    plan = plan_of(tmp_path / "a")
    assert plan.next == (Next("gone", 3, 343),)
    assert plan.queues == {("T", 0): (1 << 40) + 3, ("gone", 3): 343}
    assert plan.begin == first


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([0, 1, 3], "end with position 2, the log with 3"),
        ([0, 1], "end with position 1 at"),
        ([], "have no row"),
    ],
)
def test_queue_files_that_disagree_are_reported(tmp_path, rows, text):
    """The log counts."""
    builder = plain(tmp_path / "a", range(4))
    written_queue(tmp_path / "a", [(builder.records[n][0], builder.records[n][1]["size"]) for n in rows])
    plan = plan_of(tmp_path / "a")
    assert plan.queues == {("T", 0): 4}
    (report,) = plan.reports
    assert text in report
    assert "queue 0 of 'T'" in report


def test_inner_batches_take_as_many_positions_as_they_have_messages(tmp_path):
    """If they say their base; without it one."""
    builder = plain(tmp_path / "a", [])
    for offset, properties in ((0, b"INNER_NUM\x014\x02INNER_BASE\x010\x02"), (4, b"INNER_NUM\x014\x02"), (5, b"")):
        builder.put("T", b"b", queue_offset=offset, sys_flag=0xC0, properties=properties)
    builder.put("T", b"b", queue_offset=6, properties=b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02")
    builder.close()
    plan = plan_of(tmp_path / "a")
    assert (plan.queues, plan.shifts, plan.doubles) == ({("T", 0): 7}, (), ())
    assert any("1 records are of light queues" in each for each in plan.reports)


def test_no_consumer_is_ahead_of_its_queue(tmp_path):
    """An offset above what is left of a queue is its next position, with a line; that of an unknown queue stays."""
    builder = plain(tmp_path / "a", range(4))
    cut = builder.records[2][0]
    builder.put("U", b"u", queue_offset=0)
    builder.close()
    last = builder.records[-1]
    written_queue(tmp_path / "a", [(last[0], last[1]["size"])], "consumequeue/U/0")
    (tmp_path / "a/config").mkdir()
    table = {"T@g": {0: 4}, "T@h": {0: 2}, "T@i": {0: 1}, "U@g": {0: 1}, "V@g": {0: 7}}
    (tmp_path / "a/config/consumerOffset.json").write_text(json.dumps({"offsetTable": table}))
    whole, short = plan_of(tmp_path / "a"), plan_of(tmp_path / "a", end=cut)
    assert whole.reports == ()
    assert {(each.topic, each.group): offset for each, offset in whole.offsets.items()} == {
        ("T", "g"): 4, ("T", "h"): 2, ("T", "i"): 1, ("U", "g"): 1, ("V", "g"): 7
    }  # fmt: skip
    assert {(each.topic, each.group): offset for each, offset in short.offsets.items()} == {
        ("T", "g"): 2, ("T", "h"): 2, ("T", "i"): 1, ("U", "g"): 0, ("V", "g"): 7
    }  # fmt: skip
    assert [line.split(",")[0] for line in short.reports] == [
        "group 'g' had consumed queue 0 of 'T' up to 4",
        "group 'g' had consumed queue 0 of 'U' up to 1",
    ]


def test_offsets_of_consumers_that_are_not_understood_are_reported(tmp_path):
    """And the document is kept."""
    plain(tmp_path / "a", [0])
    (tmp_path / "a/config").mkdir()
    (tmp_path / "a/config/consumerOffset.json").write_text("{")
    plan = plan_of(tmp_path / "a")
    assert plan.offsets == {}
    assert "consumerOffset.json is not understood" in plan.reports[0]
    assert [each.name for each in plan.documents] == ["config/consumerOffset.json"]


def test_too_many_exceptions(tmp_path, monkeypatch):
    """A store whose queues can't be kept is refused at the record."""
    monkeypatch.setattr("quire.messages.rocketmq.plan.MEMBERS_MAX", 3)
    builder = plain(tmp_path / "a", [0, 0, 0, 5, 7])
    failure = refused("Unsupported", tmp_path / "a")
    assert (failure.file, failure.offset) == (str(log_file(tmp_path / "a", 0)), builder.records[4][0])


def test_a_store_without_records(tmp_path):
    """Zeros only: nothing comes in, and there is nothing to refuse."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(FILE_BYTES))
    plan = plan_of(tmp_path)
    assert (plan.records, plan.begin, plan.end, plan.files, plan.address) == (0, 0, 0, (), "")
    assert plan.regions == (Region(0, "plain"),)


def test_progress_ends_with_all(tmp_path):
    """Bytes done never fall."""
    told = []
    make_plan(Tree(), Wanted((str(unpack("plain-clean", tmp_path)),)), lambda *each: told.append(each))
    assert told == sorted(told)
    assert told[-1] == (4 * ARCHIVE_FILE_BYTES, 4 * ARCHIVE_FILE_BYTES)


# Refusals of values


def test_an_entry_of_a_newer_dledger(tmp_path):
    """Another magic is refused, not taken for damage."""
    root = unpack(DLEDGER[1], tmp_path)
    file = root / "dledger-n2/data" / f"{0:020d}"
    data = bytearray(file.read_bytes())
    second = struct.unpack_from(">i", data, 4)[0]
    struct.pack_into(">i", data, second, 2)
    file.write_bytes(data)
    failure = refused("Unsupported", root)
    assert (failure.file, failure.offset) == (str(file), second)


def test_a_value_that_is_too_large(tmp_path, monkeypatch):
    """It names its place."""
    monkeypatch.setattr("quire.messages.core.scan.VALUE_BYTES_MAX", 1000)
    builder = plain(tmp_path / "a", [0])
    builder.put("T", b"y" * 1000, queue_offset=1)
    builder.close()
    assert refused("Unsupported", tmp_path / "a").offset == builder.records[1][0]


def test_too_many_fillers_in_a_row(tmp_path, monkeypatch):
    """A skip of the log has 32 bits."""
    monkeypatch.setattr("quire.messages.rocketmq.walking.SKIP_BYTES_MAX", 2 * FILE_BYTES)
    builder = plain(tmp_path / "a", [0])
    for number in range(1, 4):
        builder.write(number * FILE_BYTES, struct.pack(">II", FILE_BYTES, parser.BLANK))
    builder.write(builder.end, struct.pack(">II", FILE_BYTES - builder.end, parser.BLANK))
    builder.end = 4 * FILE_BYTES
    builder.put("T", b"z", queue_offset=1)
    builder.close()
    failure = refused("Unsupported", tmp_path / "a")
    assert (failure.offset, failure.file) == (4 * FILE_BYTES, str(log_file(tmp_path / "a", 4 * FILE_BYTES)))
    monkeypatch.setattr("quire.messages.rocketmq.walking.SKIP_BYTES_MAX", 1 << 32)
    plan = plan_of(tmp_path / "a")
    assert [each.records for each in plan.files] == [1, 0, 0, 0, 1]


def test_an_end_that_was_asked_for(tmp_path):
    """What is above is not looked at; an end inside a record names where that begins."""
    builder = plain(tmp_path / "a", range(40))
    places = [at for at, _record in builder.records]
    overwrite(tmp_path / "a", places[20] + 100, b"\xff" * 10)
    failure = refused("DamagedMiddle", tmp_path / "a")
    assert failure.offset == places[20]
    assert f"--end {places[20]}" in str(failure)
    assert str(places[21]) in str(failure)
    plan = plan_of(tmp_path / "a", end=places[20])
    assert (plan.records, plan.end) == (20, places[20])
    assert plan_of(tmp_path / "a", end=places[7]).records == 7
    with pytest.raises(ValueError, match=f"inside the value that begins at {places[7]}: give that"):
        plan_of(tmp_path / "a", end=places[7] + 1)
    refused("DamagedMiddle", tmp_path / "a", end=places[30])
    refused("TornTail", tmp_path / "a", end=places[21])
    assert plan_of(tmp_path / "a", end=places[21], accept_tail=True).end == places[20]


def test_no_directory(tmp_path):
    """A plan needs one; it is a mistake of the call."""
    with pytest.raises(ValueError, match="store directory"):
        plan_of()
