"""`quire recover` and `quire decommission` against real bookies that are killed."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from quire.client import Client, LedgerFenced, connect
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStoreRefused, NoSuchEntry, NoSuchLedgerExists
from quire.replication.freeing.run import Failed
from quire.tools.commands.repair.recover import accepted_losses
from quire.tools.local_cluster.cluster import LocalCluster
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.reactor import reactor
from tests.replication.stories import closed
from tests.tools.command import ok, quire, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

SHAPES = [(3, 3, 2), (4, 2, 1), (4, 3, 2), (2, 2, 2)]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster for one test: its bookies are killed."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), 5, options=SMALL) as made:
        yield made


@pytest.fixture
def bk(cluster: LocalCluster) -> Iterator[Client]:
    with connect(cluster.uri) as made:
        yield made


def text(number: int) -> list[bytes]:
    return [b"ledger %d, line %d\n" % (number, line) for line in range(300 * number + 1)]


def write(bk: Client, number: int, shape: tuple[int, int, int] | None = None) -> int:
    """Writes one of the ledgers; its id."""
    ensemble, copies, acks = shape or SHAPES[number]
    with bk.create_ledger(ensemble_size=ensemble, write_quorum=copies, ack_quorum=acks) as writer:
        writer.append_many(text(number))
        return writer.id


def read(bk: Client, ledger: int) -> list[bytes]:
    with bk.open_ledger(ledger, recover=False) as reader:
        return [entry.data for entry in reader]


def naming(bk: Client, bookie: str) -> set[int]:
    """The ledgers whose metadata names a bookie."""
    return {ledger for ledger in bk.ledgers() if bookie in bk.metadata(ledger).bookies()}


def test_decommission_of_a_killed_bookie(cluster: LocalCluster, bk: Client) -> None:
    """
    Refused while it is up; then every ledger, striped ones and an open one too, has all its copies, and the cookie is
    gone.
    """
    uri = cluster.uri
    ledgers = [write(bk, number) for number in range(len(SHAPES))]
    writer = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
    writer.append_many(text(1))
    lost = bk.metadata(writer.id).last_fragment.bookies[0]
    line = refused(1, "decommission", lost, metadata=uri)
    assert "IllegalOp" in line
    assert lost in line

    cluster.kill(lost)
    damaged = naming(bk, lost)
    before = quire("ledger", "check", *ledgers, writer.id, "--json", metadata=uri)
    assert before.code == 1
    missing = {row["ledger"]: row["missing"] for row in before.rows}
    assert {ledger for ledger, parts in missing.items() if parts} <= damaged
    assert {part["bookie"] for parts in missing.values() for part in parts} == {lost}

    done = ok("decommission", lost, "--json", metadata=uri).document
    assert set(done["ledgers"]) == damaged
    assert done["ledgers_fenced"] == 1, "only the open ledger whose last ensemble named it"
    assert not done["failed"]
    after = ok("ledger", "check", *ledgers, writer.id, "--json", metadata=uri).rows
    assert all(row["good"] == row["copies"] and row["state"] == "CLOSED" for row in after)
    assert not naming(bk, lost)
    assert [read(bk, ledger) for ledger in ledgers] == [text(number) for number in range(len(SHAPES))]
    assert read(bk, writer.id) == text(1), "what was acknowledged is in the ledger that was closed under its writer"
    with pytest.raises(LedgerFenced):
        writer.append(b"too late")
    known = {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
    assert known == set(cluster.ids) - {lost}
    assert "is unknown" in refused(1, "decommission", lost, metadata=uri)


def test_recover(cluster: LocalCluster, bk: Client) -> None:
    """
    A dry run counts and changes nothing; --ledger frees one ledger; without it all; the cookie stays, and so does an
    open ledger elsewhere.
    """
    uri = cluster.uri
    ledgers = [write(bk, number) for number in range(len(SHAPES))]
    lost = bk.metadata(ledgers[1]).fragments[0].bookies[1]
    apart = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    while lost in bk.metadata(apart.id).bookies():
        apart.close()
        bk.delete_ledger(apart.id)  # where it ends is unknown once its only bookie is gone
        apart = bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1)
    apart.append(b"still here")
    cluster.kill(lost)
    damaged = naming(bk, lost)

    dry = ok("recover", lost, "--dry-run", "--json", metadata=uri).document
    assert dry["dry_run"] is True
    assert set(dry["ledgers"]) == damaged == naming(bk, lost)
    assert dry["entries"] > 0

    done = ok("recover", lost, "--ledger", ledgers[1], "--json", metadata=uri)
    one, told = done.document, json.loads(done.err.splitlines()[-1])
    assert one["ledgers"] == [ledgers[1]]
    assert (told["event"], told["ledgers_done"], told["ledgers_named"], told["seconds_left"]) == ("progress", 1, 1, 0)
    assert (told["entries"], told["entries_total"]) == (one["entries"], one["entries"])
    assert naming(bk, lost) == damaged - {ledgers[1]}
    rest = ok("recover", lost, "--rate", 50_000_000, metadata=uri)
    assert lost in rest.out
    assert "recover: looking at all ledgers: 5 ledgers in" in rest.err
    assert "recover: " in rest.err.splitlines()[-1]
    assert not naming(bk, lost)
    ok("ledger", "check", *ledgers, metadata=uri)
    assert apart.append(b"and here") == 1, "an open ledger that does not name the lost bookie keeps its writer"
    state = {row["bookie"]: row["state"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
    assert state[lost] == "down"

    cluster.restart(lost)
    assert "IllegalOp" in refused(1, "recover", lost, metadata=uri)


def test_nowhere_to_copy_to(cluster: LocalCluster, bk: Client) -> None:
    """The numbers are printed, the status is 1, and the next run, with a bookie more, ends well."""
    uri = cluster.uri
    ledger = write(bk, 1, (5, 3, 2))
    lost = cluster.ids[2]
    cluster.kill(lost)
    failed = quire("decommission", lost, "--json", metadata=uri)
    assert failed.code == 1
    assert lost in failed.err
    assert re.search("all that are writable are in the ensemble or failed lately: .*; start another bookie", failed.err)
    assert "Traceback" not in failed.err
    assert naming(bk, lost) == {ledger}
    assert lost in {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}, (
        "its cookie stays until it is free"
    )
    with LocalCluster(cluster.directory / "more", 1, options={**SMALL, "metadataServiceUri": uri}) as more:
        ok("decommission", lost, metadata=uri)
        assert naming(bk, more.ids[0]) == {ledger}
        assert not naming(bk, lost)
        ok("ledger", "check", ledger, metadata=uri)


def test_unknown_ids(cluster: LocalCluster) -> None:
    """A mistyped id is not "recovered" in silence; one that can't be an id is wrong usage."""
    for word in ("recover", "decommission"):
        assert "10.9.8.7:1" in refused(1, word, "10.9.8.7:1", metadata=cluster.uri)
        assert "no bookie id" in refused(2, word, "no/id", metadata=cluster.uri)


def test_a_ledger_whose_metadata_cant_be_read_says_what_to_do(cluster: LocalCluster, bk: Client) -> None:
    """It may name the bookie, so the cookie stays; what the refusal advises, as a user would type it, ends that."""
    uri = cluster.uri
    fine, hurt = write(bk, 0), write(bk, 0)
    lost = bk.metadata(fine).fragments[0].bookies[0]
    with closing(sqlite3.connect(uri.removeprefix("sqlite://"))) as store, store:
        damage = "UPDATE nodes SET data = x'' WHERE path = ?"
        assert store.execute(damage, (stored.PATHS.path_of(hurt),)).rowcount == 1
    cluster.kill(lost)
    line = refused(1, "decommission", lost, metadata=uri)
    (advice,) = re.findall("`quire (ledger delete [0-9]+)`", line)
    assert advice == f"ledger delete {hurt}"
    assert f"ledger {hurt}: its metadata can't be read" in line
    assert read(bk, fine) == text(0)
    assert lost in {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}, "the cookie stays"
    assert advice in refused(1, "ledger", "show", hurt, metadata=uri)
    ok(*advice.split(), "--yes", metadata=uri)
    assert ok("decommission", lost, "--json", metadata=uri).document["failed"] == []
    assert lost not in {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}


def test_a_drain_from_the_command_line(cluster: LocalCluster, bk: Client) -> None:
    """It ends when the bookie is empty and says what is next; it can be taken back; odd options are refused."""
    uri = cluster.uri
    ledgers = [write(bk, number) for number in range(len(SHAPES))]
    bookie = next(each for each in cluster.ids if naming(bk, each))
    had = naming(bk, bookie)
    assert "one of --drain, --undo" in refused(2, "decommission", bookie, "--drain", "--undo", metadata=uri)
    assert "was not being drained" in ok("decommission", "--undo", bookie, metadata=uri).out
    done = ok("decommission", "--drain", bookie, metadata=uri).out
    assert f"named by {len(had)} of {len(ledgers)} ledgers" in done
    assert "stop it" in done
    assert not naming(bk, bookie)
    ok("ledger", "check", *ledgers, metadata=uri)
    rows = {row["bookie"]: row for row in ok("bookie", "list", "--json", metadata=uri).rows}
    assert rows[bookie]["state"] == "read-only"
    assert [each for each in rows if rows[each]["draining"]] == [bookie]
    assert "`quire decommission --undo" in ok("bookie", "readonly", bookie, "off", metadata=uri).out
    assert ok("decommission", "--undo", bookie, "--json", metadata=uri).document == {"bookie": bookie, "undone": True}
    while rows[bookie]["state"] != "writable":  # each look is a process
        rows = {row["bookie"]: row for row in ok("bookie", "list", "--json", metadata=uri).rows}
    assert not rows[bookie]["draining"]


def test_a_ledger_that_cant_be_looked_at_keeps_no_loss_from_being_accepted() -> None:
    """One that names no digest, one that was deleted meanwhile, one that the store refuses: the other is let go."""
    cluster = FakeCluster(6)
    lost = closed(cluster, {0: ["b2"]}, 5, write=1)
    old, foreign, away = (*(closed(cluster, {0: ["b0", "b1", "b2"]}, 5) for _ in range(2)), 77)
    now = stored.Ledgers(cluster.shared)[old]
    value = replace(now.value, digest=None, password=None, ack_quorum=3, custom={}, format_version=1)
    stored.Ledgers(cluster.shared)[old] = now._replace(value=value)
    cluster.kill("b2")
    client = cluster.client()
    here = cluster.succeed(client.store.cluster()).instance_id
    fault = Fault(error=MetaStoreRefused("its access list"))
    cluster.store_fault = lambda name, arguments: fault if (name, *arguments) == ("read_ledger", foreign) else None
    failed = [Failed(ledger, "no copy") for ledger in (away, old, foreign, lost)]
    assert cluster.succeed(accepted_losses(reactor, client, ["b2"], here, failed)) == {lost: ((0, 5),)}


def test_a_loss_that_is_accepted(cluster: LocalCluster, bk: Client) -> None:
    """What is gone is listed; only who names the cluster lets go of it; then a reader is told, and the bookie goes."""
    uri = cluster.uri
    with bk.create_ledger(ensemble_size=1, write_quorum=1, ack_quorum=1) as writer:
        writer.append_many(text(0) + text(1))
    kept = write(bk, 0)
    (lost,) = bk.metadata(writer.id).bookies()
    cluster.kill(lost)
    count = len(text(0) + text(1))
    said = quire("decommission", lost, "--accept-loss", metadata=uri, stdin=b"another\n")
    assert said.code == 1
    assert f"ledger {writer.id}: {count:,} entries have no copy left: 0 to {count - 1}" in said.err
    assert "nothing was let go" in said.err
    assert naming(bk, lost) == {writer.id}
    assert quire("recover", lost, "--accept-loss", "--cluster", "another", metadata=uri).code == 1
    assert naming(bk, lost) == {writer.id}
    instance = ok("metadata", "show", "--json", metadata=uri).document["cluster"]
    ok("decommission", lost, "--accept-loss", metadata=uri, stdin=f"{instance}\n".encode())
    assert not naming(bk, lost)
    assert lost not in {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
    with bk.open_ledger(writer.id) as reader:
        assert reader.last_entry_id == count - 1
        with pytest.raises((NoSuchEntry, NoSuchLedgerExists)):
            reader.read(0, count - 1)
    assert read(bk, kept) == text(0)
