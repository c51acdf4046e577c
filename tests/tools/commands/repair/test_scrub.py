"""`quire scrub` on real bookies: what it finds, mends, tells and prints, and where it goes on."""

import json
from collections.abc import Iterator

import pytest

from quire.pipeline.clients import Cluster, cluster
from quire.replication.scrub.run import Point, Points
from quire.tools.commands.repair.scrub import name_of
from quire.tools.local_cluster.cluster import LocalCluster
from tests.pipeline.jobs.faults import faulty, filled, made
from tests.tools.command import ok, quire, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

ALL = [(0, (1 << 63) - 2)]


@pytest.fixture
def bookies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four, of one test alone."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 4, options=SMALL) as made:
        yield made


def points(ours: Cluster, repair: bool) -> Points:
    return Points(ours.client.store.records, name_of(repair, ALL))


def test_found_then_mended_then_nothing(bookies: LocalCluster) -> None:
    """Each fault as what it is, once; --repair makes all good; what nobody has is left, with the reason, and 1."""
    uri, ours = bookies.uri, cluster(bookies.uri)
    whole = filled(ours, bookies.ids[:3], 300)
    ledger, expected = faulty(ours, bookies.ids[:3], 600)
    gone = made(ours, bookies.ids[:3], 5)
    found = quire("scrub", "--settle", 0, "--ledgers", f"{whole},{ledger}", "--json", metadata=uri)
    assert found.code == 1
    rows, last = found.rows[:-1], found.rows[-1]
    assert sorted((row["kind"], row["bookie"], row["first"], row["last"]) for row in rows) == expected
    assert (last["event"], last["ledgers"], last["copies"]) == ("scrubbed", 2, 3 * 900)
    assert (last["findings"], last["mended"], last["left"]) == (len(expected), 0, len(expected))
    told = json.loads([line for line in found.err.splitlines() if line.startswith("{")][-1])
    assert (told["event"], told["ledgers_done"], told["ledgers_total"], told["seconds_left"]) == ("progress", 2, 2, 0)
    assert told["bytes"] == told["bytes_total"] == last["bytes"] > 3 * 900 * 12

    mended = quire("scrub", "--repair", "--settle", 0, metadata=uri)
    assert mended.code == 1
    assert mended.out.count("; mended\n") == len(expected)
    left = [line for line in mended.out.splitlines() if "not mended" in line]
    assert left
    assert all(line.startswith(f"ledger {gone} entries 0 to 4 lost") for line in left), left
    assert f"{len(expected)} mended, {len(left)} left" in mended.out.splitlines()[-1]

    ours.wait(lambda: ours.client.delete_ledger(gone))
    again = ok("scrub", "--settle", 0, metadata=uri)
    assert "2 ledgers, 2,700 copies" in again.out
    assert "0 findings" in again.out


def test_it_goes_on_where_it_was_cut_off(bookies: LocalCluster) -> None:
    """With what was found before, also for the exit status; not for another manner, and not with --restart."""
    uri, ours = bookies.uri, cluster(bookies.uri)
    ledgers = [filled(ours, bookies.ids[:3], 50) for _ in range(4)]
    counts = {"ledgers": 2, "copies": 300, "bytes": 1000, "findings": 1, "mended": 0, "left": 1}
    point = Point(ledgers[1], [ledgers[0]], 1_700_000_000_000, counts)
    ours.wait(lambda: points(ours, repair=False).write(point))
    assert "4 ledgers, 600 copies" in ok("scrub", "--repair", "--settle", 0, metadata=uri).out
    went_on = quire("scrub", "--settle", 0, "--json", metadata=uri)
    assert went_on.code == 1
    assert f"goes on above ledger {ledgers[1]} with the scrub of 2023-11-14" in went_on.err
    last = went_on.document
    assert (last["ledgers"], last["copies"], last["findings"]) == (4, 300 + 3 * 150, 1)
    assert (last["went_on_after"], last["begun_ms"]) == (ledgers[1], point.begun_ms)
    assert ours.wait(lambda: points(ours, repair=False).read()) is None
    ours.wait(lambda: points(ours, repair=False).write(point))
    assert "4 ledgers, 600 copies" in ok("scrub", "--restart", metadata=uri).out


def test_ledgers_that_there_are_not(bookies: LocalCluster) -> None:
    """Are named: "0 findings" would say that they are whole."""
    assert "there is no ledger 987654" in refused(1, "scrub", "--ledgers", "987654", metadata=bookies.uri)


def test_ledgers_that_are_no_ids(bookies: LocalCluster) -> None:
    """Wrong usage names what is wrong."""
    assert "'x'" in refused(2, "scrub", "--ledgers", "7,x", metadata=bookies.uri)
