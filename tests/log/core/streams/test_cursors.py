"""Acknowledgements as bytes: there and back, in bounds, and what is refused."""

import json
from random import Random

import pytest

from quire.log.core.streams.cursors import (
    ACKS_BYTES_MAX,
    HEADER,
    INDEX_MAX,
    CursorEntry,
    Kind,
    acks_of,
    bodies,
    decode_acks,
    pack_change,
    pack_checkpoint,
    unpack_entry,
    unpack_runs,
)
from quire.protocol import log_errors
from quire.protocol.log_errors import LogDamaged
from tests.log.fakes import drawn

# SPDX-License-Identifier: Apache-2.0

VECTORS = [json.loads(line) for line in drawn.VECTORS.joinpath("cursors.jsonl").read_text().splitlines()]
RUNS = [(12, 13), (15, 400), (401, 1 << 40), (1 << 41, INDEX_MAX)]


def test_a_change_there_and_back():
    """Its mark and runs."""
    (body,) = bodies(10, RUNS)
    assert unpack_entry(pack_change(10, body)) == CursorEntry(Kind.CHANGE, 0, 1, 10, RUNS)
    assert unpack_entry(pack_change(3, b"")) == CursorEntry(Kind.CHANGE, 0, 1, 3, [])


def test_a_checkpoint_in_parts():
    """Each of about the size, beginning at the mark anew; one part when there is no run."""
    runs = [(7 * number + 3, 7 * number + 5) for number in range(1000)]
    entries = pack_checkpoint(2, list(bodies(2, runs, 100)))
    assert len(entries) > 10
    assert max(map(len, entries)) < HEADER.size + 120
    found = [unpack_entry(entry) for entry in entries]
    assert [(each.kind, each.part, each.parts, each.mark) for each in found] == [
        (Kind.CHECKPOINT, number, len(entries), 2) for number in range(len(entries))
    ]
    assert [run for each in found for run in each.runs] == runs
    assert [unpack_entry(each).runs for each in pack_checkpoint(9, list(bodies(9, [])))] == [[]]


def test_few_bytes_for_a_run():
    """At most 3 of a run that is at most 127 long and 16,383 behind the one before."""
    dice, at, runs = Random(1), 5, []
    for _ in range(10_000):
        start = at + dice.randint(1, (1 << 14) - 1)
        at = start + dice.randint(1, 127)
        runs.append((start, at))
    found = list(bodies(5, runs))
    assert sum(map(len, found)) <= 3 * len(runs)
    assert [run for body in found for run in unpack_runs(body, 5)] == runs


def test_in_a_value():
    """Text of at most 4 KiB, or none; the gap of the first run is since 0."""
    assert decode_acks(acks_of(RUNS)) == RUNS
    assert acks_of([]) == ""
    assert decode_acks("") == []
    short = [(2 * number + 1, 2 * number + 2) for number in range(ACKS_BYTES_MAX * 3 // 4 // 2)]
    assert len(acks_of(short)) == ACKS_BYTES_MAX
    assert acks_of([*short, (10**5, 10**5 + 1)]) is None
    assert acks_of([(2 * number + 1, 2 * number + 2) for number in range(10**5)]) is None


@pytest.mark.parametrize("vector", [each for each in VECTORS if "means" in each], ids=lambda each: each["case"])
def test_entries_say_what_the_vector_says(vector):
    """And are the same bytes again."""
    means, data = vector["means"], bytes.fromhex(vector["hex"])
    found = unpack_entry(data)
    runs = [list(run) for run in found.runs]
    kind = Kind(found.kind).name.lower()
    assert {**found._asdict(), "kind": kind, "runs": runs} == means
    (body,) = bodies(found.mark, found.runs)
    parts = [b""] * found.part + [body] + [b""] * (found.parts - found.part - 1)
    made = pack_checkpoint(found.mark, parts)[found.part] if kind == "checkpoint" else pack_change(found.mark, body)
    assert made == data


@pytest.mark.parametrize("vector", [each for each in VECTORS if "refused" in each], ids=lambda each: each["case"])
def test_what_is_refused(vector):
    """What contradicts the page is damage, what a newer version wrote is told apart."""
    with pytest.raises(getattr(log_errors, vector["refused"])):
        unpack_entry(bytes.fromhex(vector["hex"]))


@pytest.mark.parametrize("text", ["A", "AA==A", "ä", "AgM=\n", "AgA="])
def test_acknowledgements_that_are_none(text):
    """In a value."""
    with pytest.raises(LogDamaged):
        decode_acks(text)
