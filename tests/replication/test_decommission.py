"""Decommissioning: every ledger is freed from the bookie before its cookie goes, and what refuses that."""

import pytest

from quire.metadata.store import CookieNotFound
from quire.protocol.errors import IllegalOp, Replication
from quire.replication.checker import check_ledger
from quire.replication.decommission import decommission
from tests.client.fakes.cluster import FakeCluster
from tests.replication.stories import closed, cookie, left_open
from tests.replication.test_lost_bookies import THREE, lose, naming


def test_decommissioning_frees_every_ledger_and_removes_the_cookie():
    """No metadata names the bookie, and all ledgers are complete."""
    cluster = FakeCluster(6)
    ledgers = [
        closed(cluster, {0: THREE}, 20),
        left_open(cluster, {0: THREE}, 5),
        closed(cluster, {0: ["b0", "b2", "b3"]}, 4),
    ]
    cookie(cluster, "b1")
    cookie(cluster, "b2")
    lose(cluster, "b1")
    client = cluster.client()
    done = cluster.succeed(decommission(client, "b1"))
    assert done.complete
    assert naming(cluster, "b1") == []
    assert all(cluster.succeed(check_ledger(client, ledger)).complete for ledger in ledgers)
    assert cluster.succeed(cluster.store.cookies()) == ["b2"]
    assert cluster.succeed(decommission(client, "b1")).ledgers == ()


def test_decommissioning_a_bookie_that_is_up_is_refused_and_changes_nothing():
    """It raises `IllegalOp`, and the cookie stays."""
    cluster = FakeCluster(4)
    closed(cluster, {0: THREE}, 5)
    cookie(cluster, "b1")
    error = cluster.fails(decommission(cluster.client(), "b1"))
    assert isinstance(error, IllegalOp)
    assert error.code == -100
    assert cluster.succeed(cluster.store.cookies()) == ["b1"]
    assert not cluster.writes[1:]


def test_a_cookie_stays_while_any_ledger_names_its_bookie():
    """The error counts these ledgers."""
    cluster = FakeCluster(3)
    closed(cluster, {0: THREE}, 5)
    cookie(cluster, "b1")
    lose(cluster, "b1")
    error = cluster.fails(decommission(cluster.client(), "b1"))
    assert isinstance(error, Replication)
    assert "1 ledgers still name b1" in str(error)
    assert cluster.succeed(cluster.store.cookies()) == ["b1"]


def test_a_bookie_that_comes_back_meanwhile_keeps_its_cookie():
    """The decommission raises `IllegalOp`."""
    cluster = FakeCluster(5)
    closed(cluster, {0: THREE}, 5)
    cookie(cluster, "b1")
    cluster.kill("b1")

    def judge(request):
        if request.op == "recovery add" and not cluster.bookies["b1"].up:
            cluster.bookies["b1"].up = True
            cluster.clock.callLater(0, cluster.register, "b1")
        return "pass"

    cluster.judge = judge
    assert isinstance(cluster.fails(decommission(cluster.client(), "b1")), IllegalOp)
    assert cluster.succeed(cluster.store.cookies()) == ["b1"]


def test_a_copy_that_cannot_be_read_back_is_not_named():
    """Decommissioning verifies: a new bookie that stores rubbish is replaced by another."""
    cluster = FakeCluster(6)
    ledger = closed(cluster, {0: THREE}, 20)
    lose(cluster, "b1")
    liar: list[str] = []

    def judge(request):
        if request.op == "recovery add" and not liar:
            liar.append(request.bookie)
        if liar and request.bookie == liar[0] and request.op == "batch":
            return -13
        return "pass"

    cluster.judge = judge
    client = cluster.client()
    cluster.succeed(decommission(client, "b1"))
    assert liar[0] not in cluster.metadata(ledger).bookies()
    with pytest.raises(CookieNotFound):
        cluster.succeed(cluster.store.read_cookie("b1"))
