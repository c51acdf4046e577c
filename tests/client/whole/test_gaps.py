"""
Windows and backlogs when ids have gaps (advanced writers), and when a recovery writes back more than a window holds.
"""

from tests.client.fakes.cluster import FakeCluster


def created(cluster, **options):
    return cluster.succeed(cluster.client(**options).create_ledger(advanced=True))


def test_an_advanced_writer_that_counts_downwards_fills_its_window_and_goes_on():
    """All that is under way waits for the lowest id, so that one must not wait for the window."""
    cluster = FakeCluster()
    writer = created(cluster, window_entries_max=5)
    done = [cluster.outcome(writer.append_at(entry, b"x")) for entry in reversed(range(10))]
    cluster.spin(5)
    assert [each.value for each in done] == list(reversed(range(10)))


def test_a_gap_is_filled_also_when_no_more_is_taken():
    """The missing id is accepted although the window is full, and the waiting entries complete."""
    cluster = FakeCluster()
    writer = created(cluster, window_entries_max=3)
    done = [cluster.outcome(writer.append_at(entry, b"x")) for entry in range(1, 10)]
    cluster.spin(1)
    assert [each.code for each in done] == [-1000] * 5 + [-105] * 4, "what waits is bounded"
    assert cluster.succeed(writer.append_at(0, b"x")) == 0
    cluster.spin(1)
    assert [each.code for each in done[:5]] == [0] * 5


def test_a_gap_is_filled_also_when_every_backlog_is_full():
    """The missing id is sent although replicas have full backlogs, and no bookie is replaced."""
    cluster = FakeCluster()
    writer = created(cluster, replica_backlog_bytes_max=200)
    done = [cluster.outcome(writer.append_at(entry, b"x" * 90)) for entry in (3, 2, 1)]
    cluster.spin(20)
    assert [each.code for each in done] == [-1000] * 3
    assert cluster.succeed(writer.append_at(0, b"x" * 90)) == 0
    cluster.spin(1)
    assert [each.code for each in done] == [0] * 3
    assert writer.ensemble_changes == 0


def test_a_recovery_finds_more_than_the_window_holds():
    """A recovery of 40 entries completes with a window of one entry."""
    cluster = FakeCluster()
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    for entry in range(40):
        cluster.put(ledger, entry, b"x", -1, entry + 1, "b0", "b1")
    reader = cluster.succeed(cluster.client(window_entries_max=1).open_ledger(ledger))
    assert (reader.last_entry_id, reader.length) == (39, 40)
