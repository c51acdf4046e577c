"""
`quire scrub` beside writers: faults in the entry logs of bookies that run are all found and mended, and nothing else is
found; its rate is the one that was asked for; SIGKILL in its midst costs nothing.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import pytest

from quire.client import Client, Writer, connect
from quire.pipeline.clients import Cluster, cluster
from quire.replication.concurrently import all_of
from quire.replication.scrub.run import Points
from quire.tools.commands.repair.scrub import name_of
from quire.tools.local_cluster.cluster import READY_S, STOP_S, LocalCluster, LocalRecovery
from tests.pipeline.jobs.faults import good, made, payload, send
from tests.processes.test_drain import Busy
from tests.replication.scrub.faults import ENTRIES, Copy, closed, held, spoil, with_faults
from tests.tools.command import COMMAND, environment, ok, quire
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

ALL = [(0, (1 << 63) - 2)]
WAIT_S = 120.0


@pytest.fixture
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four, of one test alone."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 4, options=SMALL) as started:
        yield started


def with_bad_ones(ours: Cluster, bookies: LocalCluster, count: int, dice: Random) -> dict[Copy, str]:
    """Ledgers on the bookies' disks, and which copies are to be bad, by how."""
    faults = ours.wait(partial(with_faults, ours.client, bookies.ids, count, dice))
    for bookie in bookies.ids:  # what a bookie flushes at its end is in no cache of the next process
        assert bookies.stop_bookie(bookie)
        bookies.restart(bookie)
    return faults


def directories(bookies: LocalCluster) -> dict[str, Path]:
    return {bookie.id: bookie.directory / "ledgers" for bookie in bookies.bookies}


def copies_of(rows: list[dict[str, Any]]) -> list[Copy]:
    """Of findings; each ledger has all entries on all its bookies."""
    return [Copy(row["ledger"], row["bookie"], entry) for row in rows for entry in range(row["first"], row["last"] + 1)]


def writing(ledgers: list[int], idle: list[Writer]) -> Callable[[Client, int], None]:
    """A user's turns: small ledgers, of which some are closed at once, some are left open."""

    def turn(client: Client, number: int) -> None:
        writer = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        ledgers.append(writer.id)
        for _ in range(3):
            writer.append_many([b"x" * 200] * 20)
        if number % 3:
            writer.close()
        else:
            idle.append(writer)

    return turn


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_all_faults_are_found_and_mended_beside_writers(bookies: LocalCluster, count: int) -> None:
    """Each copy once, as what it is; no alarm about others; then nothing is found, and all copies are as they were."""
    seed = SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    dice = Random(seed)
    uri, ours = bookies.uri, cluster(bookies.uri)
    whole = ours.wait(partial(closed, ours.client, bookies.ids[1:]))
    faults = with_bad_ones(ours, bookies, count, dice)
    ledgers: list[int] = []
    idle: list[Writer] = []
    users = [Busy(uri, writing(ledgers, idle)) for _ in range(2)]
    try:
        for user in users:
            user.go_on()
        spoil(directories(bookies), faults, dice)
        found = quire("scrub", "--repair", "--json", metadata=uri)
        rows, last = found.rows[:-1], found.rows[-1]
        seen = copies_of(rows)
        assert sorted(seen) == sorted(faults)
        assert {whole, *ledgers}.isdisjoint(copy.ledger for copy in seen)
        for row in rows:
            kinds = {faults[copy] for copy in copies_of([row])}
            assert kinds <= ({"missing"} if row["kind"] == "missing" else {"flip", "cut", "wrong id"}), row
            assert row["mended"], row
        assert (found.code, last["left"]) == (0, 0)
        assert last["ledgers"] >= len({whole, *(copy.ledger for copy in faults)}) + 6  # of users' turns before
        for user in users:
            user.go_on()
        again = quire("scrub", "--json", metadata=uri)
        assert (again.code, again.document["findings"]) == (0, 0), again.out
        for user in users:
            user.go_on()
    finally:
        for user in users:
            user.stop()
    for ledger in {copy.ledger for copy in faults}:
        assert ours.wait(partial(held, ours.client, ledger)) == [good(ledger, ENTRIES)] * 3


@pytest.mark.parametrize("beside", ["nothing", "writers"])
def test_the_rate_is_the_one_that_was_asked_for(bookies: LocalCluster, beside: str) -> None:
    """Of all bookies together, on megabytes, to a tenth; beside writers to open ledgers, too."""
    asked, size = 1_500_000, 64 << 10
    users = [Busy(bookies.uri, appending()) for _ in range(2 if beside == "writers" else 0)]
    try:
        for user in users:
            user.go_on()
        _check_rate(bookies, asked, size)
        for user in users:
            user.go_on()
    finally:
        for user in users:
            user.stop()


def appending() -> Callable[[Client, int], None]:
    """A user's turns: more entries of a ledger that stays open."""
    writers: list[Writer] = []

    def turn(client: Client, _number: int) -> None:
        if not writers:
            writers.append(client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2))
        writers[0].append_many([b"x" * 200] * 20)

    return turn


def _check_rate(bookies: LocalCluster, asked: int, size: int) -> None:
    with (
        connect(bookies.uri) as client,
        client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3) as writer,
    ):
        for _ in range(12):
            writer.append_many([os.urandom(size)] * 10)
    done = quire("scrub", "--rate", asked, "--json", metadata=bookies.uri)
    assert done.code == 0, done.err
    events = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    first, last = events[0], events[-1]
    assert last["bytes"] == done.document["bytes"] > 3 * 120 * size
    spent = last["seconds"] - first["seconds"]
    assert spent > 5
    rate = (last["bytes"] - first["bytes"]) / spent
    print(f"{rate:,.0f} bytes a second of {asked:,}")
    assert 0.9 * asked <= rate <= 1.1 * asked


@pytest.mark.parametrize("repair", [False, True])
def test_one_that_was_killed_is_gone_on_with(bookies: LocalCluster, repair: bool) -> None:
    """Nothing is left out or counted twice, with --repair nothing is mended twice; what waited is looked at again."""
    uri, ours = bookies.uri, cluster(bookies.uri)
    three = bookies.ids[:3]
    count, entries = 600, 3

    async def filling(ledger: int, number: int) -> None:
        for index, bookie in enumerate(three):
            bodies = good(ledger, entries)
            if number % 10 == index:
                del bodies[1]
            await send(ours, ledger, bookie, bodies)

    length = entries * len(payload(0))
    ledgers = [made(ours, three, entries, length=length + (number % 50 == 1)) for number in range(count)]
    for start in range(0, count, 50):
        some = range(start, start + 50)
        ours.wait(partial(all_of, [filling(ledgers[number], number) for number in some]))
    missing = {(ledgers[number], "missing") for number in range(count) if number % 10 < 3}
    lengths = {(ledgers[number], "length") for number in range(count) if number % 50 == 1}

    rate = "100000" if repair else "25000"  # copies that are made count, too
    command = ["scrub", "--rate", rate, "--settle", "3", "--json", *(["--repair"] if repair else [])]
    points = Points(ours.client.store.records, name_of(repair, ALL))
    with subprocess.Popen(
        [*COMMAND, *command], env=environment(uri), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as first:
        try:
            while (point := ours.wait(points.read)) is None:
                assert first.poll() is None, "it ended without a point"
        finally:
            first.kill()
        assert first.stdout is not None
        lines = first.stdout.read().splitlines()
    assert ledgers[0] <= point.after < ledgers[-1]
    before = [(row["ledger"], row["kind"]) for row in map(json.loads, lines)]
    went_on = quire(*command, metadata=uri)
    assert went_on.rows, went_on
    rows, last = went_on.rows[:-1], went_on.rows[-1]
    after = [(row["ledger"], row["kind"]) for row in rows]
    assert last["went_on_after"] >= point.after
    assert last["ledgers"] == count
    assert len(set(after)) == len(after)
    assert len(set(before)) == len(before)
    if repair:
        assert set(before) & set(after) <= lengths
        assert went_on.code == 1
        left = quire("scrub", "--settle", 0, "--json", metadata=uri).rows[:-1]
        assert {(row["ledger"], row["kind"]) for row in left} == lengths
    else:
        assert {*before, *after} == missing | lengths
        assert last["findings"] == len(missing | lengths)


def test_the_auditor_scrubs_and_workers_mend(bookies: LocalCluster, tmp_path: Path) -> None:
    """With no command at all: every copy is as it was, the queue is empty, and the status says when it began."""
    seed = SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    dice = Random(seed)
    ours = cluster(bookies.uri)
    faults = with_bad_ones(ours, bookies, 60, dice)
    spoil(directories(bookies), faults, dice)
    healer = LocalRecovery(tmp_path / "healer")
    healer.write_conf(bookies.uri, {"auditorPeriodicCheckInterval": "0", "auditorScrubRate": "0"})
    healer.begin()
    try:
        healer.ready(time.monotonic() + READY_S)
        end = time.monotonic() + WAIT_S
        for ledger in {copy.ledger for copy in faults}:
            while ours.wait(partial(held, ours.client, ledger)) != [good(ledger, ENTRIES)] * 3:
                assert time.monotonic() < end, healer.log.read_text(errors="replace")[-3000:]
        while ours.wait(ours.client.store.repairs.shortages):
            assert time.monotonic() < end, healer.log.read_text(errors="replace")[-3000:]
    finally:
        healer.ask_to_end()
        healer.wait_for_end(time.monotonic() + STOP_S)
    assert "scrub:     checked 20" in ok("autorecovery", "status", metadata=bookies.uri).out
