"""Histories of message stores: how they are judged, sources in memory, and some seeds of each profile."""

from random import Random

import pytest

from quire.log.core.batch import Records
from quire.log.owner.appending.encoder import Encoder
from quire.messages.rocketmq.plan import make_plan
from quire.messages.rocketmq.source import Wanted
from tests.messages.reference import parser
from tests.simulation.log_records import content
from tests.simulation.messages_history import garbled
from tests.simulation.messages_source import ROOT, MemoryTree, Source, placed
from tests.simulation.messages_truth import CHECKPOINT, MessageTruth, Row, keys_of
from tests.simulation.nodes import World
from tests.simulation.sweep import sweep


@pytest.mark.parametrize("part_bytes", [1 << 20, 64])
def test_places_of_values(part_bytes):
    """Skips count, in whole batches and in parts."""
    encoder = Encoder.of_ledger(part_bytes, "none")
    batches = [Records([b"a" * 100, b"b"], skips=[7, 3]), Records([b"c"])]
    found = content([entry for batch in batches for entry in encoder.encode(batch, 7)[0]])
    assert list(found.places(1000)) == [(1007, b"a" * 100), (1110, b"b"), (1111, b"c")]
    assert found.bytes == 112
    assert found.ends[-2:] == [2, 3]


@pytest.mark.parametrize("seed", range(25))
def test_a_source_in_memory_is_what_a_plan_finds(seed):
    """The model of a broker's queues that judges imports agrees with the plan, which shares no code with it."""
    source = Source(Random(seed))
    plan = make_plan(MemoryTree(source.files), Wanted((ROOT,), single=True))
    assert (plan.begin, plan.end, plan.records) == (source.begin, source.end, len(source.values))
    assert plan.queues == source.next
    assert {tuple(consumed): position for consumed, position in plan.offsets.items()} == source.offsets
    if source.kind != "plain":
        assert plan.regions[-1].begin == source.region


def judged() -> tuple[MessageTruth, list[Row], dict[bytes, bytes]]:
    """Two records of one queue, and their rows."""
    truth = MessageTruth(World(1, 0.001, 0.001), None, 4096, 0)
    rows: list[Row] = []
    found: dict[bytes, bytes] = {}
    at = 0
    for position in range(2):
        value = parser.pack("T", b"x", queue_offset=position, offset=at, properties=b"UNIQ_KEY\x01u%d\x02" % position)
        row = Row(position, placed(at, value), position)
        rows.append(row)
        at += len(value)
        found.update(keys_of(row.found.record))
        key = b"q\0\1T\0\0\0\0" + position.to_bytes(8, "big")
        found[key] = row.found.at.to_bytes(8, "big") + len(value).to_bytes(4, "big") + bytes(17) + b"\1"
    found[b"m\0\1T\0\0\0\0"] = bytes(15) + b"\2"
    found[b"d"] = CHECKPOINT.pack(1, bytes(16), 2, at, 0)
    return truth, rows, found


def test_rows_that_are_right():
    """All rows of two records; and of a crash that left the keys of the second alone."""
    truth, rows, found = judged()
    truth.judge_rows("m", found, rows, 0, is_whole=True)
    second = b"q\0\1T\0\0\0\0" + bytes(7) + b"\1"
    prefix = {**found, b"d": CHECKPOINT.pack(1, bytes(16), 1, 0, 0), b"m\0\1T\0\0\0\0": bytes(15) + b"\1"}
    del prefix[second]
    truth.judge_rows("m", prefix, rows, 0)
    assert truth.truth.violation is None


@pytest.mark.parametrize("how", ["garbled", "lacking", "above", "bounds"])
def test_rows_that_are_wrong(how):
    """Another offset, a row that is missing, one above the checkpoint, bounds that lack the last one."""
    truth, rows, found = judged()
    second = b"q\0\1T\0\0\0\0" + bytes(7) + b"\1"
    if how == "garbled":
        found = garbled(found, how)
    elif how == "lacking":
        del found[second]
    elif how == "above":
        found[b"d"] = CHECKPOINT.pack(1, bytes(16), 1, 0, 0)
    else:
        found[b"m\0\1T\0\0\0\0"] = bytes(15) + b"\1"
    truth.judge_rows("m", found, rows, 0)
    assert truth.truth.violation is not None
    assert truth.truth.violation.invariant == "M4"


@pytest.mark.parametrize(("name", "count"), [("messages", 20), ("messages import", 16)])
def test_some_histories_break_nothing(name, count):
    """M1 to M6 hold, and what matters is met."""
    result = sweep(range(3200, 3200 + count), name)
    assert not result.broken, "\n".join(f"{plan}: {violation}" for plan, violation in result.broken)
    met = {"log: put acknowledged", "log: group acknowledged", "log: became master", "log: reached dispatch.written"}
    if name == "messages import":
        met |= {"log: import ended", "log: killed in import", "log: batch published"}
    else:
        met |= {"log: open ledger recovered from outside", "log: takeover: crash", "log: reached rebuild.deleted"}
    assert met <= {case for case, times in result.seen.items() if times}
