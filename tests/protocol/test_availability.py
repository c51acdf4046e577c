"""Which entries a bookie holds, as bytes (wire.md 8)."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.protocol import availability
from quire.protocol.errors import MalformedFrame
from tests.protocol.samples import rows

# SPDX-License-Identifier: Apache-2.0

EXAMPLE = "0000000000000003" + "0" * 112
EXAMPLE += "000000000000000000000000000000000000000300000000" + "000000000000000500000000000000050000000100000000"
EXAMPLE += "000000000000000800000000000000080000000200000000"


def runs_of(entries: list[int]) -> list[tuple[int, int]]:
    """The slow twin: ids one by one."""
    runs: list[tuple[int, int]] = []
    for entry in sorted(set(entries)):
        if runs and runs[-1][0] + runs[-1][1] == entry:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((entry, 1))
    return runs


def header(groups: int, version: int = 0) -> bytes:
    return struct.pack(">ii56x", version, groups)


def group(first: int, last: int, size: int, period: int) -> bytes:
    return struct.pack(">qqii", first, last, size, period)


def test_every_captured_list_both_ways() -> None:
    """Lists captured from a real bookie are encoded and decoded byte by byte."""
    for row in rows("list_of_entries"):
        data = bytes.fromhex(row["bytes"])
        assert availability.encode((entry, 1) for entry in row["entries"]) == data
        assert availability.decode(data) == runs_of(row["entries"])
        assert availability.encode(availability.decode(data)) == data


def test_an_example_with_gaps() -> None:
    """Known bytes and runs convert to each other."""
    assert availability.encode([(0, 3), (5, 1), (8, 2)]).hex() == EXAMPLE
    assert availability.decode(bytes.fromhex(EXAMPLE)) == [(0, 3), (5, 1), (8, 2)]


def test_an_empty_set_is_64_zero_bytes() -> None:
    """It is the header alone."""
    assert availability.encode([]) == bytes(64)
    assert availability.decode(bytes(64)) == []


def test_periodic_groups_are_expanded() -> None:
    """Decoders must accept what Apache's encoder never writes."""
    data = header(1) + group(0, 12, 3, 6)
    assert availability.decode(data) == [(0, 3), (6, 3), (12, 3)]
    assert availability.decode(header(2) + group(0, 4, 1, 2) + group(9, 9, 2, 0)) == [(0, 1), (2, 1), (4, 1), (9, 2)]


def test_overlapping_and_unsorted_groups_come_out_clean() -> None:
    """Decoded runs are sorted, disjoint and as long as possible."""
    data = header(3) + group(10, 10, 5, 0) + group(0, 0, 3, 0) + group(2, 2, 2, 0)
    assert availability.decode(data) == [(0, 4), (10, 5)]
    assert availability.decode(header(1) + group(0, 6, 4, 3)) == [(0, 10)]


@given(st.lists(st.integers(0, 200), max_size=80))
def test_any_set_of_ids_both_ways(entries: list[int]) -> None:
    """A set of entry ids survives, with one group for each run."""
    runs = runs_of(entries)
    data = availability.encode(runs)
    assert availability.decode(data) == runs
    assert len(data) == 64 + 24 * len(runs)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-1, 5)), max_size=10))
def test_touching_and_overlapping_runs_are_merged(steps: list[tuple[int, int]]) -> None:
    """Steps of the first id forward, so that runs ascend; empty ones vanish."""
    first, runs = 0, []
    for step, count in steps:
        first += abs(step)
        runs.append((first, count))
    held = [entry for start, count in runs for entry in range(start, start + count)]
    assert list(availability.merged(runs)) == runs_of(held)


def test_descending_runs_are_our_own_mistake() -> None:
    """Encoding them raises `ValueError`."""
    with pytest.raises(ValueError, match="ascend"):
        availability.encode([(5, 10), (3, 1)])


def test_a_run_longer_than_a_group_takes_two() -> None:
    """Runs above 31 bits are encoded in two groups and decoded as one."""
    data = availability.encode([(7, (1 << 31) + 5)])
    assert data[64:] == group(7, 7, (1 << 31) - 1, 0) + group(7 + (1 << 31) - 1, 7 + (1 << 31) - 1, 6, 0)
    assert availability.decode(data) == [(7, (1 << 31) + 5)]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=40))
def test_periodic_groups_hold_the_same_runs(steps: list[tuple[int, int]]) -> None:
    """`periodic` against expanding by hand: every group is legal and nothing is lost."""
    runs, first = [], 0
    for distance, size in steps:
        first += distance
        runs.append((first, size))
        first += size
    groups = list(availability.periodic(runs))
    assert availability.decode(header(len(groups)) + b"".join(group(*fields) for fields in groups)) == list(
        availability.merged(runs)
    )
    assert len(groups) <= max(1, len(runs))


def test_a_period_fits_its_field() -> None:
    """Neighbours further apart than 2^31 - 1 do not share a group."""
    assert list(availability.periodic([(0, 1), ((1 << 31) - 1, 1)])) == [(0, (1 << 31) - 1, 1, (1 << 31) - 1)]
    assert list(availability.periodic([(0, 1), (1 << 31, 1)])) == [(0, 0, 1, 0), (1 << 31, 1 << 31, 1, 0)]


def test_a_striped_ledger_of_any_size_fits_a_frame() -> None:
    """Two of three entries of 900,000: plain groups would take 7 MB, above the frame limit."""
    runs = [(first, 2) for first in range(0, 900_000, 3)]
    data = availability.encode(runs)
    assert len(data) == 64 + 24
    assert availability.decode(data) == runs


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no header"),
        (bytes(63), "a short header"),
        (header(0, version=1), "a newer version"),
        (header(0, version=-1), "a negative version"),
        (header(1), "a group is missing"),
        (header(0) + group(0, 0, 1, 0), "a group too many"),
        (header(-1), "a negative count"),
        (header(1) + group(0, 0, 1, 0)[:-1], "a short group"),
        (header(1) + group(0, 0, 0, 0), "an empty sequence"),
        (header(1) + group(0, 0, -5, 0), "a negative sequence"),
        (header(1) + group(5, 0, 1, 1), "last before first"),
        (header(1) + group(0, 5, 1, 0), "period 0 with two sequences"),
        (header(1) + group(0, 5, 1, -1), "a negative period"),
        (header(1) + group(0, 5, 1, 2), "a last sequence that the period does not reach"),
        (header(1) + group(0, (1 << 62), 1, 1), "2^62 runs: would not end"),
        (header(1) + group(-5, -5, 3, 0), "an entry below 0"),
        (header(1) + group((1 << 63) - 2, (1 << 63) - 2, 3, 0), "an entry above the last id"),
    ],
)
def test_damage_is_refused(data: bytes, why: str) -> None:
    """A malformed header or group raises `MalformedFrame`."""
    with pytest.raises(MalformedFrame):
        availability.decode(data)


def test_the_runs_of_one_list_are_bounded_over_all_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 bytes must not become a list of any length."""
    monkeypatch.setattr(availability, "RUNS_MAX", 100)
    one = group(0, 118, 1, 2)  # 60 runs
    assert len(availability.decode(header(1) + one)) == 60
    with pytest.raises(MalformedFrame, match="100"):
        availability.decode(header(2) + one + group(200, 318, 1, 2))


def test_the_longest_list() -> None:
    """Whatever 88 bytes say: what they take of a client's time and memory has a bound."""
    runs = availability.decode(header(1) + group(0, 2 * availability.RUNS_MAX - 2, 1, 2))
    assert (len(runs), runs[-1]) == (availability.RUNS_MAX, (2 * availability.RUNS_MAX - 2, 1))
    with pytest.raises(MalformedFrame):
        availability.decode(header(1) + group(0, 2 * availability.RUNS_MAX, 1, 2))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5), st.integers(1, 5), st.integers(1, 6)), max_size=6))
def test_groups_in_any_order_and_across_each_other(groups: list[tuple[int, int, int, int]]) -> None:
    """The runs are those of the ids, ascending and joined, however the groups lie."""
    ids = {
        first + number * period + more
        for first, count, size, period in groups
        for number in range(count)
        for more in range(size)
    }
    packed = b"".join(group(first, first + (count - 1) * period, size, period) for first, count, size, period in groups)
    expected = list(availability.merged((each, 1) for each in sorted(ids)))
    assert availability.decode(header(len(groups)) + packed) == expected


@given(st.binary(max_size=200))
def test_junk_is_refused_or_decoded_never_worse(data: bytes) -> None:
    """Random bytes raise `MalformedFrame` or give merged runs."""
    try:
        runs = availability.decode(header(len(data) // 24) + data[: len(data) // 24 * 24])
    except MalformedFrame:
        return
    assert runs == list(availability.merged(runs))
