"""`quire recover` and `quire decommission` against real bookies that are killed."""

from collections.abc import Iterator

import pytest

from quire.tools.cluster import LocalCluster
from tests.tools.command import ok, quire, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

SHAPES = [(3, 3, 2), (4, 2, 1), (4, 3, 2), (2, 2, 2), (3, 3, 2)]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster for one test: its bookies are killed."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 5, options=SMALL) as made:
        yield made


def text(number: int) -> bytes:
    return b"".join(b"ledger %d, line %d\n" % (number, line) for line in range(200 * number + 1))


def write(uri: str, number: int, *options: object) -> int:
    """Writes one of the ledgers; its id."""
    ensemble, copies, acks = SHAPES[number % len(SHAPES)]
    words = ["--lines", "--ensemble", ensemble, "--write", copies, "--ack", acks, *options]
    return int(ok("ledger", "write", *words, metadata=uri, stdin=text(number)).out)


def bookies_of(uri: str, ledger: int) -> set[str]:
    shown = ok("ledger", "show", ledger, "--json", metadata=uri).document
    return {bookie for fragment in shown["fragments"] for bookie in fragment["bookies"]}


def test_decommission_of_a_killed_bookie(cluster: LocalCluster) -> None:
    """Refused while it is up; then every ledger, striped ones and an open one too, has all its copies, and the cookie is gone."""
    uri = cluster.uri
    ledgers = [write(uri, number) for number in range(4)] + [write(uri, 4, "--keep-open")]
    (ensemble,) = [part["bookies"] for part in ok("ledger", "show", ledgers[4], "--json", metadata=uri).document["fragments"]]
    lost = ensemble[0]
    line = refused(1, "decommission", lost, metadata=uri)
    assert "IllegalOp" in line
    assert lost in line
    assert all(ok("ledger", "check", ledger, metadata=uri) for ledger in ledgers), "nothing was touched"

    cluster.kill(lost)
    damaged = {ledger for ledger in ledgers if lost in bookies_of(uri, ledger)}
    before = quire("ledger", "check", *ledgers, "--json", metadata=uri)
    assert before.code == 1
    missing = {row["ledger"]: row["missing"] for row in before.rows}
    assert {ledger for ledger, parts in missing.items() if parts} <= damaged
    assert {part["bookie"] for parts in missing.values() for part in parts} == {lost}

    done = ok("decommission", lost, "--json", metadata=uri).document
    assert set(done["ledgers"]) == damaged
    assert done["ledgers_fenced"] == 1, "only the open ledger whose last ensemble named it"
    assert not done["failed"]
    after = ok("ledger", "check", *ledgers, "--json", metadata=uri).rows
    assert all(row["good"] == row["copies"] and row["state"] == "CLOSED" for row in after)
    assert not any(lost in bookies_of(uri, ledger) for ledger in ledgers)
    for number, ledger in enumerate(ledgers):
        assert ok("ledger", "read", ledger, "--raw", metadata=uri).raw == text(number)
    known = {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
    assert known == set(cluster.ids) - {lost}
    assert "nobody knows" in refused(1, "decommission", lost, metadata=uri)


def test_recover(cluster: LocalCluster) -> None:
    """A dry run counts and changes nothing; --ledger frees one ledger; without it all; the cookie stays, and so does an open ledger elsewhere."""
    uri = cluster.uri
    ledgers = [write(uri, number) for number in range(3)]
    lost = ok("ledger", "show", ledgers[1], "--json", metadata=uri).document["fragments"][0]["bookies"][1]
    apart = int(ok("ledger", "write", "--ensemble", 1, "--write", 1, "--ack", 1, "--keep-open", metadata=uri, stdin=b"x").out)
    while lost in bookies_of(uri, apart):
        apart = int(ok("ledger", "write", "--ensemble", 1, "--write", 1, "--ack", 1, "--keep-open", metadata=uri, stdin=b"x").out)
    cluster.kill(lost)
    damaged = [ledger for ledger in ledgers if lost in bookies_of(uri, ledger)]

    dry = ok("recover", lost, "--dry-run", "--json", metadata=uri).document
    assert dry["dry_run"] is True
    assert set(damaged) <= set(dry["ledgers"])
    assert dry["entries"] > 0
    assert lost in bookies_of(uri, ledgers[1])

    one = ok("recover", lost, "--ledger", ledgers[1], "--json", metadata=uri).document
    assert one["ledgers"] == [ledgers[1]]
    assert lost not in bookies_of(uri, ledgers[1])
    rest = ok("recover", lost, metadata=uri)
    assert lost in rest.out
    assert all(lost not in bookies_of(uri, ledger) for ledger in ledgers)
    ok("ledger", "check", *ledgers, metadata=uri)
    assert ok("ledger", "show", apart, "--json", metadata=uri).document["state"] == "OPEN"
    state = {row["bookie"]: row["state"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
    assert state[lost] == "down"

    cluster.restart(lost)
    assert "IllegalOp" in refused(1, "recover", lost, metadata=uri)


def test_nowhere_to_copy_to(cluster: LocalCluster) -> None:
    """The ledger is named with the reason, the status is 1, and the next run, with a bookie more, ends well."""
    uri = cluster.uri
    ledger = int(ok("ledger", "write", "--lines", "--ensemble", 5, "--write", 3, "--ack", 2, metadata=uri, stdin=text(1)).out)
    lost = cluster.ids[2]
    cluster.kill(lost)
    failed = quire("decommission", lost, "--json", metadata=uri)
    assert failed.code == 1
    assert lost in failed.err
    assert "0 of the 4 writable ones" in failed.err
    assert "Traceback" not in failed.err
    assert lost in bookies_of(uri, ledger)
    assert lost in {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}, "its cookie stays until it is free"
    with LocalCluster(cluster.directory / "more", 1, options={**SMALL, "metadataServiceUri": uri}) as more:
        ok("decommission", lost, metadata=uri)
        assert more.ids[0] in bookies_of(uri, ledger)
        ok("ledger", "check", ledger, metadata=uri)


@pytest.mark.parametrize("words", [["recover"], ["decommission"]], ids=" ".join)
def test_ids_that_nobody_knows(cluster: LocalCluster, words: list[str]) -> None:
    """A mistyped id is not "recovered" in silence; one that can't be an id is wrong usage."""
    assert "10.9.8.7:1" in refused(1, *words, "10.9.8.7:1", metadata=cluster.uri)
    assert "no bookie id" in refused(2, *words, "no/id", metadata=cluster.uri)
