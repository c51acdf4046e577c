"""Forces under deferred sync (D15), and explicit LACs."""

import pytest

from quire.protocol.errors import (
    BookieHandleNotAvailable,
    LedgerClosed,
    Timeout,
    Write,
)
from tests.client.fakes.cluster import FakeCluster
from tests.client.fakes.ledgers import created, ensemble


def test_deferred_sync_confirms_by_force():
    """`force` moves the last confirmed entry, and a close drops what was not forced."""
    cluster = FakeCluster()
    writer = created(cluster, write_flags="DEFERRED_SYNC")
    cluster.succeed(writer.force())
    cluster.succeed(writer.append_many([b"ab"] * 3))
    assert writer.last_add_confirmed == -1
    cluster.succeed(writer.force())
    assert writer.last_add_confirmed == 2
    cluster.succeed(writer.append(b"lost"))
    cluster.succeed(writer.close())
    metadata = cluster.metadata(writer.id)
    assert (metadata.last_entry, metadata.length) == (2, 6), "what was not forced is dropped by the close"


def test_d15_a_bookie_that_failed_is_not_back_when_changes_are_allowed():
    """The switch is turned for it as for others: it lost what was not synced, and a force never succeeds."""
    cluster = FakeCluster()
    client = cluster.client(delay_ensemble_change=True)
    writer = cluster.succeed(client.create_ledger(write_flags="DEFERRED_SYNC"))
    cluster.succeed(writer.append(b"acknowledged"))
    cluster.kill("b0")
    cluster.spin(2)
    cluster.bookies["b0"].ledgers.pop(writer.id)
    cluster.restart("b0")
    client.disable_ensemble_change(False)
    cluster.spin(100)
    assert writer.bookies_out == ("b0",)
    with pytest.raises(BookieHandleNotAvailable):
        cluster.succeed(writer.force())
    assert writer.last_add_confirmed == -1


def test_an_explicit_lac_that_was_refused_is_sent_again():
    """By itself, at the next time."""
    cluster = FakeCluster()
    writer = created(cluster, options={"explicit_lac_interval_ms": 100})
    refused = []

    def judge(request):
        if request.op == "write lac" and len(refused) < 3:
            refused.append(request)
            return BookieHandleNotAvailable.code
        return "pass"

    cluster.judge = judge
    cluster.succeed(writer.append_many([b"a", b"b"]))
    cluster.spin(1)
    assert len(refused) == 3
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    assert cluster.succeed(reader.read_last_confirmed()) == 1


def test_d15_a_force_over_another_connection_ends_the_writer():
    """A force fails when the bookie was restarted since the append, and the ledger is closed."""
    cluster = FakeCluster()
    writer = created(cluster, write_flags=["DEFERRED_SYNC"])
    cluster.succeed(writer.append(b"x"))
    name = ensemble(cluster, writer)[0]
    cluster.judge = lambda request: "hold" if request.op == "force" and request.bookie == name else "pass"
    force = cluster.outcome(writer.force())
    cluster.spin(0.1)
    cluster.bookies[name].starts += 1
    cluster.let_go()
    cluster.spin(1)
    assert isinstance(force.error, Write)
    assert isinstance(cluster.fails(writer.append(b"y")), LedgerClosed)


def test_a_force_that_a_close_overtakes_is_no_success():
    """The close drops what was not forced by then."""
    cluster = FakeCluster()
    writer = created(cluster, write_flags="DEFERRED_SYNC")
    cluster.succeed(writer.append(b"x"))
    cluster.judge = lambda request: "hold" if request.op == "force" else "pass"
    force = cluster.outcome(writer.force())
    cluster.spin(0.1)
    cluster.succeed(writer.close())
    cluster.let_go()
    cluster.spin(1)
    assert isinstance(force.error, LedgerClosed)
    assert cluster.metadata(writer.id).last_entry == -1


def test_a_force_connects_to_a_bookie_that_had_no_add_yet():
    """
    A striped ledger's first entries are not on every bookie; one that carried nothing can't have lost anything (D15).
    """
    cluster = FakeCluster()
    client = cluster.client()
    pool = client.pool

    def connected(name):
        return any(each.bookie.name == name for each in pool.channels) or any(
            each.bookie == name for each in pool.asked
        )

    pool.connection_of = lambda name: cluster.bookies[name].starts if connected(name) else None
    writer = cluster.succeed(
        client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2, write_flags="DEFERRED_SYNC")
    )
    cluster.succeed(writer.append(b"x"))
    idle = next(name for name in ensemble(cluster, writer) if not connected(name))
    cluster.succeed(writer.force())
    assert writer.last_add_confirmed == 0
    cluster.bookies[idle].starts += 1
    cluster.judge = lambda request: "hold" if request.op == "force" and request.bookie == idle else "pass"
    force = cluster.outcome(writer.force())
    cluster.spin(0.1)
    cluster.bookies[idle].starts += 1
    cluster.let_go()
    cluster.spin(1)
    assert force.code == 0
    assert cluster.succeed(writer.append(b"y")) == 1


def test_a_force_with_a_bookie_down_fails_and_names_it():
    """The error is a time-out with the bookie's name."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    cluster.judge = lambda request: "drop" if request.op == "force" and request.bookie == "b1" else "pass"
    error = cluster.fails(writer.force())
    assert isinstance(error, Timeout)
    assert "b1" in str(error)


def test_deferred_sync_dies_with_its_first_bookie():
    """Appends fail after the loss of a bookie instead of changing the ensemble."""
    cluster = FakeCluster(4)
    writer = created(cluster, write_flags="DEFERRED_SYNC")
    cluster.succeed(writer.append(b"x"))
    cluster.kill(ensemble(cluster, writer)[0])
    cluster.spin(0.1)
    assert isinstance(cluster.fails(writer.append(b"y")), Write | LedgerClosed)


def test_an_explicit_lac_reaches_the_bookies():
    """A reader without recovery sees the entry that `write_lac` confirmed."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.write_lac())
    cluster.succeed(writer.append_many([b"a", b"b"]))
    cluster.succeed(writer.write_lac())
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    assert reader.last_entry_id == 1


def test_an_explicit_lac_needs_its_quorum():
    """Below the ack quorum it fails, and the error says how many bookies it reached."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append(b"a"))
    cluster.judge = lambda request: "drop" if request.op == "write lac" and request.bookie != "b0" else "pass"
    error = cluster.fails(writer.write_lac())
    assert isinstance(error, Timeout)
    assert "reached 1 bookies, and 2 of them (the ack quorum) are needed: b1 gave no answer in time" in str(error)


@pytest.mark.parametrize("entries", [0, 1])
def test_force_and_explicit_lac_on_a_closed_writer(entries):
    """Both fail with `LedgerClosed`."""
    cluster = FakeCluster()
    writer = created(cluster)
    cluster.succeed(writer.append_many([b"a"] * entries))
    cluster.succeed(writer.close())
    assert isinstance(cluster.fails(writer.force()), LedgerClosed)
    assert isinstance(cluster.fails(writer.write_lac()), LedgerClosed)
