"""Entries of ledgers as Arrow batches, from real bookies."""

from collections.abc import Sequence
from typing import Any

import pytest

from quire.client.api import Client
from quire.conf.pipeline import LedgerReading
from quire.pipeline.clients import Cluster
from quire.pipeline.core.filters import bounded
from quire.pipeline.core.ranges import Extent, Range
from quire.pipeline.core.selection import Selection
from quire.pipeline.reading import ledgers as module
from quire.pipeline.reading.ledgers import (
    SCHEMA,
    LedgersGone,
    batches,
    between,
    divided,
    extents_of,
    open_extent,
    planned,
    selected,
)
from quire.protocol.errors import LedgerError, NoSuchLedger, Read, UnauthorizedAccess
from tests.client.fakes.cluster import FakeCluster
from tests.pipeline.reading.virtual import only_first_learns, process
from tests.pipeline.written import ledger

# SPDX-License-Identifier: Apache-2.0

PAYLOADS = [b"%d" % number + b"x" * (number % 7) for number in range(250)]
ANY = bounded((), ("ledger_id", "entry_id"))


def reading(ours: Cluster, **options: Any) -> LedgerReading:
    return LedgerReading.of({"metadata": ours.uri, **{name: str(value) for name, value in options.items()}})


def rows(ours: Cluster, ranges: list[Range], options: LedgerReading, names: list[str]) -> list[dict[str, Any]]:
    return [row for batch in batches(ours, ranges, names, options) for row in batch.to_pylist()]


def test_every_column(ours: Cluster) -> None:
    """`length` is the ledger's up to an entry, also from the middle of it on."""
    found = ledger(ours, PAYLOADS)
    given = rows(ours, [Range(found, 100, 249)], reading(ours, ledgers=found, batchBytes=100), list(SCHEMA))
    assert [list(row) for row in given] == [list(SCHEMA)] * 150
    assert [tuple(row.values()) for row in given] == [
        (found, entry, sum(map(len, PAYLOADS[: entry + 1])), PAYLOADS[entry]) for entry in range(100, 250)
    ]


def test_small_ledgers_share_batches(ours: Cluster) -> None:
    """In their order, beside large ones, of which none is held back; several are opened at a time, not all."""
    large = ledger(ours, [bytes(70_000)] * 20)
    small = [ledger(ours, PAYLOADS[number : number + 3]) for number in range(40)]
    order = [*small[:20], large, *small[20:]]
    opened: list[int] = []
    most = 0
    open_ledger, others = ours.client.open_ledger, len(ours.client.handles)

    def counted(number: int, *more: Any) -> Any:
        nonlocal most
        opened.append(number)
        most = max(most, len(ours.client.handles) + 1 - others)
        return open_ledger(number, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours.client, "open_ledger", counted)
        ranges = [Range(each, 0, 19 if each == large else 2) for each in order]
        made = batches(ours, ranges, list(SCHEMA), reading(ours, ledgers="1", batchBytes=300_000))
        first = next(made)
        assert len(opened) <= 20 + 2 * module.BEGUN
        found = [first, *made]
    assert opened == order
    assert 2 <= most <= module.BEGUN
    assert first.num_rows >= 60
    given = [(row["ledger_id"], row["entry_id"], row["payload"]) for batch in found for row in batch.to_pylist()]
    contents = {each: PAYLOADS[number : number + 3] for number, each in enumerate(small)} | {
        large: [bytes(70_000)] * 20
    }
    assert given == [(each, entry, payload) for each in order for entry, payload in enumerate(contents[each])]
    assert len(found) <= 8


def test_closed_ledgers_are_opened_together(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one question for the metadata of all that a task begins with, not by one each."""
    ids = [ledger(ours, PAYLOADS[:3]) for _ in range(5)]
    calls: list[list[int]] = []
    read_ledgers = ours.client.store.read_ledgers

    def counted(ledgers: Sequence[int]) -> Any:
        calls.append(sorted(ledgers))
        return read_ledgers(ledgers)

    monkeypatch.setattr(ours.client.store, "read_ledgers", counted)
    monkeypatch.setattr(ours.client.store, "read_ledger", None)
    ranges = [Range(each, number, number + 1) for each in ids for number in (0, 1)]
    given = rows(ours, ranges, reading(ours, ledgers="1"), ["ledger_id", "length", "payload"])
    ends = [sum(map(len, PAYLOADS[:count])) for count in (1, 2, 3)]
    assert [tuple(row.values()) for row in given] == [
        (each, ends[entry], PAYLOADS[entry]) for each in ids for number in (0, 1) for entry in (number, number + 1)
    ]
    assert calls == [ids]


def test_ledgers_of_large_entries_are_read_one_by_one(ours: Cluster) -> None:
    """For each that is begun keeps an entry at least."""
    large = [ledger(ours, [bytes(100_000)] * 2) for _ in range(6)]
    opened: list[int] = []
    open_ledger = ours.client.open_ledger

    def counted(number: int, *more: Any) -> Any:
        opened.append(number)
        return open_ledger(number, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours.client, "open_ledger", counted)
        made = batches(
            ours, [Range(each, 0, 1) for each in large], ["payload"], reading(ours, ledgers="1", batchBytes=1)
        )
        assert next(made).num_rows == 1
        assert len(opened) <= 3
        assert sum(each.num_rows for each in made) == 11
    assert opened == large


def test_a_ledger_that_is_gone_among_others(ours: Cluster) -> None:
    """Fails the task in its turn, or is passed over; a read that is given up closes what was begun."""
    several = [ledger(ours, PAYLOADS[:3]) for _ in range(5)]
    ours.wait(lambda: ours.client.delete_ledger(several[3]))
    ranges = [Range(each, 0, 2) for each in several]
    passing = reading(ours, ledgers="1", failOnDataLoss="false")
    assert [row["ledger_id"] for row in rows(ours, ranges, passing, ["ledger_id"])][::3] == [*several[:3], several[4]]
    with pytest.raises(NoSuchLedger):
        rows(ours, ranges, reading(ours, ledgers="1"), ["ledger_id"])
    given_up = batches(ours, ranges, ["payload"], reading(ours, ledgers="1", batchBytes=1))
    assert next(given_up).num_rows == 3
    given_up.close()  # type: ignore[attr-defined]  # it is a generator


def test_batches_have_the_size_wanted(ours: Cluster) -> None:
    """About."""
    found = ledger(ours, [bytes(40_000)] * 100)
    made = list(batches(ours, [Range(found, 0, 99)], ["payload"], reading(ours, ledgers=found, batchBytes=100_000)))
    assert len(made) >= 3
    assert sum(batch.num_rows for batch in made) == 100


def test_closed_ledgers_are_planned_together(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their metadata comes in one call, and none of them is opened."""
    ids = [ledger(ours, PAYLOADS[:3]) for _ in range(3)]
    calls: list[list[int]] = []
    read_ledgers = ours.client.store.read_ledgers

    def counted(ledgers: Sequence[int]) -> Any:
        calls.append(list(ledgers))
        return read_ledgers(ledgers)

    monkeypatch.setattr(ours.client.store, "read_ledgers", counted)
    monkeypatch.setattr(ours.client.store, "read_ledger", None)
    found = ours.wait(lambda: planned(ours.client, reading(ours, ledgers=",".join(map(str, ids))), ANY))
    assert [each.ledger for each in found] == ids
    assert calls == [ids]


def test_what_is_planned(ours: Cluster) -> None:
    """Closed ledgers to their end, open ones to the last add confirmed, or not at all, or closed first."""
    closed, still, empty = ledger(ours, PAYLOADS), ledger(ours, PAYLOADS[:10], close=False), ledger(ours, [])
    ids = f"{closed},{still},{empty}"
    found = ours.wait(lambda: planned(ours.client, reading(ours, ledgers=ids), ANY))
    assert [(each.ledger, each.first, each.last) for each in found] == [(closed, 0, 249), (still, 0, 9)]
    assert found[0].bytes == sum(map(len, PAYLOADS))
    found = ours.wait(lambda: planned(ours.client, reading(ours, ledgers=ids, openLedgers="skip"), ANY))
    assert [each.ledger for each in found] == [closed]
    found = ours.wait(lambda: planned(ours.client, reading(ours, ledgers=ids, startEntry=5, endEntry=7), ANY))
    assert [(each.first, each.last) for each in found] == [(5, 7), (5, 7)]
    bounds = bounded([("ledger_id", "=", still), ("entry_id", ">", 7)], ("ledger_id", "entry_id"))
    found = ours.wait(lambda: planned(ours.client, reading(ours, ledgers=ids), bounds))
    assert [(each.ledger, each.first, each.last) for each in found] == [(still, 8, 9)]
    assert not ours.wait(lambda: ours.client.is_closed(still))
    ours.wait(lambda: extents_of(ours.client, [still], reading(ours, ledgers=ids, openLedgers="recover")))
    assert ours.wait(lambda: ours.client.is_closed(still))


def test_wide_ranges_are_looked_up_in_the_list(ours: Cluster) -> None:
    """Of a narrow one each id is asked for."""
    there = ledger(ours, PAYLOADS[:1])
    wide = ours.wait(lambda: selected(ours.client, Selection.parse("all"), ANY["ledger_id"]))
    assert wide == ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    bounds = bounded([("ledger_id", "=", there)], ("ledger_id",))["ledger_id"]
    assert ours.wait(lambda: selected(ours.client, Selection.parse("all"), bounds)) == [there]
    assert ours.wait(lambda: selected(ours.client, Selection.parse("5-7"), ANY["ledger_id"])) == [5, 6, 7]


def test_ledgers_that_are_not_there(ours: Cluster) -> None:
    """Are named; left out where that is wanted."""
    there = ledger(ours, PAYLOADS[:3])
    with pytest.raises(LedgersGone, match=r"no ledgers 9999998, 9999999: `quire ledger list`"):
        ours.wait(lambda: planned(ours.client, reading(ours, ledgers=f"{there},9999998-9999999"), ANY))
    options = reading(ours, ledgers=f"{there},9999999", failOnDataLoss="false")
    assert ours.wait(lambda: planned(ours.client, options, ANY)) == [Extent(there, 0, 2, 6)]
    assert len(rows(ours, [Range(9_999_999, 0, 5), Range(there, 0, 2)], options, ["entry_id"])) == 3
    with pytest.raises(NoSuchLedger):
        rows(ours, [Range(9_999_999, 0, 5)], reading(ours, ledgers="1"), ["entry_id"])


def test_entries_past_the_end_are_an_error(ours: Cluster) -> None:
    """That names ledger and entries: a task never gives fewer rows than were planned."""
    there = ledger(ours, PAYLOADS[:3])
    with pytest.raises(Read, match=rf"ledger {there}: entry 9 is past 2"):
        rows(ours, [Range(there, 0, 9)], reading(ours, ledgers=there), ["payload"])


@pytest.mark.parametrize("its_end", ["slow", "dead"])
def test_what_was_confirmed_once_is_read(its_end: str) -> None:
    """
    By a stream that goes on from its checkpoint, and by its tasks, also when the bookies that they ask know only a
    lower last add confirmed than those of the first plan.
    """
    fake = FakeCluster()
    first, driver, task = process(fake), process(fake), process(fake)
    writer = fake.succeed(first.client.create_ledger())
    fake.succeed(writer.append_many([b"x"] * 10))
    knows, other = only_first_learns(fake, writer.id)
    writer.append(b"y")  # which carries that the others are confirmed
    fake.spin(0.1)
    options = reading(first, ledgers=writer.id)
    fake.slow = {other: 0.05}
    assert [each.last for each in first.wait(lambda: planned(first.client, options, ANY))] == [9]
    fake.slow = {knows: 0.05}
    if its_end == "dead":
        fake.kill(knows)
    begin, end = {str(writer.id): 0}, {str(writer.id): 10}
    found = driver.wait(lambda: between(driver.client, begin, end, options))
    assert divided(found, options) == [[Range(writer.id, 0, 9)]]
    assert rows(task, [Range(writer.id, 0, 9)], options, ["entry_id", "length"])[-1] == {"entry_id": 9, "length": 10}
    with pytest.raises(LedgerError):
        rows(task, [Range(writer.id, 0, 11)], options, ["entry_id"])


def test_a_batch_of_a_stream_asks_for_what_is_new(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone: a stream over all ledgers has thousands that it has read to their end."""
    old, new = (ledger(ours, PAYLOADS[:3], close=False) for _each in range(2))
    options = reading(ours, ledgers="all")
    asked: list[int] = []

    async def opened(client: Client, number: int, how: LedgerReading) -> Extent | None:
        asked.append(number)
        return await open_extent(client, number, how)

    monkeypatch.setattr(module, "open_extent", opened)
    begin, end = {str(old): 3, str(new): 1}, {str(old): 3, str(new): 3}
    found = ours.wait(lambda: between(ours.client, begin, end, options))
    assert divided(found, options) == [[Range(new, 1, 2)]]
    assert asked == [new]


def test_a_password(ours: Cluster) -> None:
    """Without the right one nothing is read."""
    there = ledger(ours, PAYLOADS[:3], password=b"secret")
    with pytest.raises(UnauthorizedAccess):
        rows(ours, [Range(there, 0, 2)], reading(ours, ledgers=there), ["payload"])
    assert len(rows(ours, [Range(there, 0, 2)], reading(ours, ledgers=there, password="secret"), ["payload"])) == 3
    assert issubclass(UnauthorizedAccess, LedgerError)
