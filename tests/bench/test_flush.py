"""The bench of flushes: what a round adds and counts, in checkouts of both forms; its rows beside another checkout."""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from bench import __main__ as bench
from bench import sides
from bench.flush import Durable, Flushes, open_storage
from bench.sides import flushes
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun

# SPDX-License-Identifier: Apache-2.0

OPTIONS = argparse.Namespace(entries=60, size=10, ledgers=3, run=5)


class AddedOnly:
    """A storage that keeps what was added; the tokens come back when `sync` is called, or at once."""

    def __init__(self, durable: Durable, at_once: bool = True, status: Status | None = Status.EOK) -> None:
        self.events, self.at_once, self.status = durable, at_once, status
        self.runs: list[AddRun] = []
        self.tokens: list[object] = []
        self.flushed: list[int] = []  # runs that were there at each flush

    def add(self, run: AddRun, token: object) -> Status | None:
        self.runs.append(run)
        self.tokens.append(token)
        if self.at_once:
            self.sync()
        return self.status

    def sync(self) -> None:
        tokens, self.tokens = self.tokens, []
        self.events.durable(tokens)

    def flush(self) -> "Deferred[None]":
        self.flushed.append(len(self.runs))
        return succeed(None)


def test_a_round_adds_every_entry_and_continues_the_last_one() -> None:
    """Run by run in turn over the ledgers, with consecutive ids in each; one flush at the end of each round."""
    durable = Durable()
    storage = AddedOnly(durable)
    rounds = Flushes(storage, durable, OPTIONS)
    for _ in range(2):
        Deferred.fromCoroutine(rounds.round())
    assert storage.flushed == [12, 24]
    assert [run.ledger for run in storage.runs[:4]] == [0, 1, 2, 0]
    for ledger in range(3):
        assert [run.first for run in storage.runs if run.ledger == ledger] == list(range(0, 40, 5))
    assert all(len(run.bodies) == 5 for run in storage.runs)
    assert len(rounds.cpu) == len(rounds.seconds) == 2


def test_the_flush_begins_when_the_journal_has_all() -> None:
    """Else the CPU of the journal's thread would be counted as the flush's."""
    durable = Durable()
    storage = AddedOnly(durable, at_once=False)
    Deferred.fromCoroutine(Flushes(storage, durable, OPTIONS).round())
    assert len(storage.runs) == 12
    assert storage.flushed == []
    storage.sync()
    assert storage.flushed == [12]


@pytest.mark.parametrize("status", [None, Status.EREADONLY])
def test_a_refused_add_ends_the_run(status: Status | None) -> None:
    """Fewer entries than are divided by would make the flush look cheap."""
    durable = Durable()
    found: list[Any] = []
    rounds = Flushes(AddedOnly(durable, at_once=False, status=status), durable, OPTIONS)
    Deferred.fromCoroutine(rounds.round()).addErrback(found.append)
    assert found[0].check(RuntimeError)
    assert "an add was refused" in str(found[0].value)


def test_the_first_round_is_not_counted() -> None:
    """CPU is the median of the others, the rate is over all their time."""
    rounds = Flushes(None, Durable(), OPTIONS)
    rounds.cpu, rounds.seconds = [9.0, 0.5, 0.4, 3.0], [5.0, 0.1, 0.2, 0.3]
    assert rounds.figures() == {
        "entries": 180,
        "entries_per_second": 300,
        "p50_ms": 200.0,
        "cpu_us_per_entry": 0.5,
    }


@pytest.mark.parametrize("rooms", [True, False])
def test_the_storage_of_both_forms_of_checkouts_is_opened(rooms: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with `listen`, or a module with assigned callbacks; the events are those of the bench in both."""

    class Old:
        def __init__(self, options: object, reactor: object) -> None:
            self.started = False

        def start(self) -> None:
            self.started = True

    class New(Old):
        def listen(self, events: Durable) -> None:
            self.durable, self.failed = events.durable, events.failed

    monkeypatch.setitem(sys.modules, "quire.bookie.storage", SimpleNamespace(Storage=Old))
    monkeypatch.setitem(sys.modules, "quire.bookie.storage.storage", SimpleNamespace(Storage=New) if rooms else None)
    durable = Durable()
    storage = open_storage(SimpleNamespace(), None, durable)  # type: ignore[arg-type]
    assert (type(storage), storage.started) == (New if rooms else Old, True)
    assert (storage.durable, storage.failed) == (durable.durable, durable.failed)


def test_it_runs_from_end_to_end(tmp_path: Path) -> None:
    """A storage of this checkout, in a process of its own; nothing is left on the disk."""
    found = flushes(None, str(tmp_path), {"entries": 2000, "ledgers": 4, "run": 10, "flushes": 2})
    assert set(found) == {"entries", "entries_per_second", "p50_ms", "cpu_us_per_entry"}
    assert found["entries"] == 4000
    assert found["cpu_us_per_entry"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("cost", "passed"), [(1.02, True), (1.04, False)])
def test_more_than_three_percent_above_the_other_checkout_is_missed(
    cost: float, passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rates of the flushes; each row has pairs of both checkouts."""
    before = Path("../before")
    asked: list[Path | None] = []

    def reported(checkout: Path | None, directory: str | None, words: sides.Words) -> sides.Run:
        asked.append(checkout)
        spent = 1.0 if checkout == before else cost
        return {"cpu_us_per_entry": spent, "entries_per_second": 1000.0 / spent**9, "p50_ms": spent**9}

    monkeypatch.setattr(sides, "flushes", reported)
    monkeypatch.setattr(sides, "environment_of", lambda _checkout: {})
    options = argparse.Namespace(
        only=["flush"], no_java=True, against=before, dir=None, quick=True, pairs=3, store="sqlite"
    )
    found = bench.Bench(options)
    found.all()
    assert [row.name.partition(":")[0] for row in found.rows] == ["flush 100 B", "flush 100 B, many ledgers"]
    assert [row.passed for row in found.rows] == [passed, passed]
    assert [len(row.ours) for row in found.rows] == [3, 3]
    assert asked[:4] == [None, before, before, None]
