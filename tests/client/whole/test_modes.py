"""
The ways in which a writer may treat a bookie that fails (protocol-rules.md 2.4, 2.5): quorum time-out, a bounded
number of changes, delayed changes, none at all; and explicit LAC, opportunistic striping.
"""

import pytest

from quire.client.core.append.messages import Alarm, AlarmFired, BookiesSeen, KeepEnsemble, Limits, State
from quire.metadata.ledger import LedgerState
from quire.protocol.errors import LedgerRecovery, NotEnoughBookies
from tests.client.fakes.cluster import READ_ONLY, FakeCluster
from tests.client.fakes.places import zone_aware
from tests.client.fakes.story import Story

# SPDX-License-Identifier: Apache-2.0

QUORUM_TIMEOUT, WRITE, UNREACHABLE = -21, -12, -8


def created(cluster, shape=(3, 3, 2), flags=(), **options):
    client = cluster.client(**options)
    return cluster.succeed(
        client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2], write_flags=flags)
    )


# Quorum time-out.


def test_the_error_names_entry_and_bookies_and_the_ledger_is_closed():
    """The text has entry, quorum, time and the silent bookies; the ledger ends before the entry."""
    cluster = FakeCluster(3)
    writer = created(cluster, add_quorum_timeout_ms=1000)
    cluster.succeed(writer.append(b"x"))
    cluster.judge = lambda request: "hold" if request.bookie in ("b1", "b2") else "pass"
    error = cluster.fails(writer.append(b"y"))
    assert error.code == QUORUM_TIMEOUT
    assert "entry 1 missed its ack quorum of 2 for 1000 ms" in str(error)
    assert "b1" in str(error)
    assert "b2" in str(error)
    cluster.spin(1)
    assert (cluster.metadata(writer.id).state, cluster.metadata(writer.id).last_entry) == (LedgerState.CLOSED, 0)


# A bounded number of changes.


def test_the_change_after_the_last_allowed_one_ends_the_writer():
    """A failure after `changes_max` changes closes the ledger."""
    story = Story(limits=Limits(changes_max=1))
    story.append(1)
    story.lose(0)
    story.changed(i0="b3")
    story.append(1)
    story.lose(0)
    assert story.failed == [WRITE]
    assert len(story.stores) == 1
    assert story.closes == [(-1, 0)]


def test_no_change_allowed_at_all():
    """With a maximum of 0 the first failure ends the writer, and the metadata keeps one fragment."""
    cluster = FakeCluster(4)
    writer = created(cluster, ensemble_changes_max=0)
    cluster.succeed(writer.append(b"x"))
    cluster.kill(writer.metadata.last_fragment.bookies[0], registered=True)
    done = cluster.outcome(writer.append(b"y"))
    cluster.spin(10)
    assert done.code == WRITE
    assert "the maximum" in str(done.error)
    assert cluster.metadata(writer.id).last_entry == 0
    assert len(cluster.metadata(writer.id).fragments) == 1


def test_a_failure_found_while_appends_wait_for_the_window_may_end_the_writer():
    """The limit is met in the middle of sending: nothing more is sent, and nothing hangs."""
    story = Story(limits=Limits(changes_max=0, window_entries_max=2, batch_entries_max=1, replica_backlog_bytes_max=15))
    story.append(4)
    for index in (0, 1):
        if story.machine.state is State.OPEN:
            story.ack(index, 0, 1)
    assert story.failed in ([], [WRITE])


# Delayed changes.


def delayed(shape=(3, 3, 2), **more):
    return Story(shape, limits=Limits(delay_change=True), **more)


def test_a_delayed_writer_goes_on_without_a_change():
    """With `delay_change` a lost bookie is left out while the ack quorum is reachable."""
    story = delayed()
    story.append(3)
    story.lose(0)
    assert not story.stores
    assert story.watching
    story.ack(1, 0, 2)
    story.ack(2, 0, 2)
    assert story.released == 2
    assert story.machine.out == ("b0",)


def test_a_delayed_change_replaces_everybody_once_the_quorum_is_out_of_reach():
    """One change replaces all bookies that were left out."""
    story = delayed()
    story.append(1)
    story.lose(0)
    story.lose(1)
    (stored,) = story.stores
    assert stored.failed == ((0, "b0"), (1, "b1"))
    assert stored.must
    story.changed(i0="b3", i1="b4")
    story.ack(0, 0)
    story.ack(1, 0)
    assert story.released == 0
    assert not story.watching


def test_a_delayed_writer_counts_every_write_set():
    """4/2/1: opposite bookies may both be missing, neighbours not."""
    story = delayed((4, 2, 1))
    story.append(8)
    story.lose(0)
    story.lose(2)
    assert not story.stores
    story.lose(1)
    assert [index for index, _bookie in story.stores[0].failed] == [0, 1, 2]


def test_a_read_only_bookie_is_replaced_at_once():
    """Delaying changes applies to lost connections, not to refusals."""
    story = delayed()
    story.append(1)
    story.refuse(0, 0, READ_ONLY)
    assert story.stores


def test_a_bookie_that_was_spared_is_tried_again_and_only_later():
    """The retry alarm opens a new channel to it, and its answers count."""
    story = delayed()
    story.append(1)
    story.lose(0)
    story.give(BookiesSeen(frozenset(("b0", "b1", "b2", "b9"))))
    assert len(story.opened) == 3, "it is known to be registered: no reason to try again at once"
    story.give(AlarmFired(Alarm.RETRY))
    assert story.opened[-1][1:] == (0, "b0")
    assert not story.stores, "a spare is no reason for a change"
    story.ack(0, 0)
    story.ack(1, 0)
    assert story.released == 0


def test_deferred_sync_bears_failures_only_when_changes_are_delayed():
    """Otherwise the first lost bookie ends the writer; it is never taken back."""
    for delay, code in ((False, [WRITE]), (True, [])):
        story = Story(limits=Limits(delay_change=delay), deferred_sync=True)
        story.append(1)
        story.lose(0)
        assert story.failed == code
        assert not story.watching, "it missed what can't be made durable later"


def test_a_force_without_a_bookie_that_missed_entries_fails():
    """The error names the bookie, and the last confirmed entry stays."""
    cluster = FakeCluster(3)
    writer = created(cluster, flags="DEFERRED_SYNC", delay_ensemble_change=True)
    cluster.succeed(writer.append(b"x"))
    cluster.kill("b0", registered=True)
    cluster.spin(1)
    cluster.succeed(writer.append(b"y"))
    cluster.restart("b0", registered=True)
    error = cluster.fails(writer.force())
    assert error.code == UNREACHABLE
    assert "b0" in str(error)
    assert writer.last_add_confirmed == -1


# No changes.


def test_with_changes_disabled_appends_wait_for_the_same_bookies():
    """They complete after the restart, and the metadata is not written."""
    cluster = FakeCluster(5)
    writer = created(cluster, disable_ensemble_change=True, add_timeout_ms=200)
    cluster.succeed(writer.append(b"x"))
    gone = writer.metadata.last_fragment.bookies[:2]
    cluster.kill(*gone)
    done = cluster.outcome(writer.append(b"y"))
    cluster.spin(30)
    assert not done.done
    cluster.restart(*gone)
    cluster.spin(30)
    assert done.value == 1
    assert len(cluster.writes) == 0


def test_with_changes_disabled_a_recovery_fails_instead_of_waiting_for_ever():
    """It would never try the bookies again; a later recovery does."""
    cluster = FakeCluster(5)
    ledger = cluster.ledger({0: ["b0", "b1", "b2"]}, 3, 2)
    cluster.put(ledger, 0, b"x", -1, 1, "b0", "b1")
    cluster.judge = lambda request: -12 if request.op == "recovery add" and request.bookie != "b2" else "pass"
    client = cluster.client(disable_ensemble_change=True)
    error = cluster.fails(client.open_ledger(ledger))
    assert isinstance(error, LedgerRecovery)
    assert "disabled" in str(error)
    cluster.judge = lambda request: -12 if request.op == "recovery add" and request.bookie == "b1" else "pass"
    assert cluster.succeed(client.open_ledger(ledger)).last_entry_id == 0
    assert cluster.metadata(ledger).last_fragment.bookies == ("b0", "b1", "b2")


def test_disabled_changes_are_never_stored():
    """Lost bookies are opened again when they register, whichever others do."""
    story = Story(limits=Limits(keep_ensemble=True))
    story.append(1)
    for index in (0, 1, 2):
        story.lose(index)
    assert not story.stores
    assert not story.failed
    story.give(BookiesSeen(frozenset()))
    story.give(BookiesSeen(frozenset(("b0", "b1", "b7"))))
    story.ack(0, 0)
    story.ack(1, 0)
    assert story.released == 0


# Explicit LAC.


def test_an_idle_writer_sends_its_last_add_confirmed_once():
    """One round of explicit LACs follows the last append, and no timer remains after the close."""
    cluster = FakeCluster(3)
    writer = created(cluster, explicit_lac_interval_ms=100)
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    cluster.succeed(writer.append_many([b"a", b"b"]))
    assert cluster.succeed(reader.read_last_confirmed()) == -1
    cluster.spin(0.3)
    assert cluster.succeed(reader.read_last_confirmed()) == 1
    sent = [request for pool in cluster.pools for request in pool.asked if request.op == "write lac"]
    assert len(sent) == 3, "one round to the write set"
    cluster.spin(5)
    assert len([request for pool in cluster.pools for request in pool.asked if request.op == "write lac"]) == 3
    cluster.succeed(writer.close())
    cluster.spin(1)
    assert not [call for call in cluster.clock.getDelayedCalls() if "_tell_lac" in repr(call)]


def test_adds_that_carry_the_news_make_it_needless():
    """While appends go on, no explicit LAC is sent."""
    cluster = FakeCluster(3)
    writer = created(cluster, explicit_lac_interval_ms=100)
    for _ in range(20):
        cluster.succeed(writer.append(b"a"))
        cluster.spin(0.05)
    assert not [request for pool in cluster.pools for request in pool.asked if request.op == "write lac"]


def test_a_failure_to_send_it_has_no_effect():
    """Appends succeed after a refused explicit LAC."""
    cluster = FakeCluster(3)
    writer = created(cluster, explicit_lac_interval_ms=100)
    cluster.succeed(writer.append(b"a"))
    cluster.judge = lambda request: -12 if request.op == "write lac" else "pass"
    cluster.spin(1)
    assert cluster.succeed(writer.append(b"b")) == 1


# Opportunistic striping.


def test_with_too_few_bookies_the_ensemble_shrinks_to_the_write_quorum():
    """Opportunistic striping takes what there is, down to the write quorum."""
    cluster = FakeCluster(3)
    assert created(cluster, (5, 2, 2), opportunistic_striping=True).metadata.ensemble_size == 3
    assert cluster.fails(cluster.client().create_ledger(ensemble_size=5, write_quorum=2, ack_quorum=2)).code == -6
    assert (
        cluster.fails(
            cluster.client(opportunistic_striping=True).create_ledger(ensemble_size=5, write_quorum=4, ack_quorum=2)
        ).code
        == -6
    )


def test_an_ensemble_that_is_far_too_large_shrinks_in_one_step():
    """To what is registered; the store is not asked for each size between."""
    cluster, asked = FakeCluster(3), []
    client = cluster.client(opportunistic_striping=True)
    cluster.store_fault = lambda name, _given: asked.append(name)
    writer = cluster.succeed(client.create_ledger(ensemble_size=2000, write_quorum=2, ack_quorum=2))
    assert writer.metadata.ensemble_size == 3
    assert asked.count("bookies") < 10


def test_a_smaller_ensemble_that_the_placement_does_not_take_is_passed_over():
    """
    Strict zone-aware placement takes multiples of the write quorum; that the wanted size is none is the caller's
    mistake.
    """
    cluster = FakeCluster(5)
    client = cluster.client(opportunistic_striping=True)
    client.choice.placement = zone_aware({f"b{number}": f"/z{number % 3}/b{number}" for number in range(5)})
    assert cluster.succeed(client.create_ledger(ensemble_size=6, write_quorum=3)).metadata.ensemble_size == 3
    assert isinstance(cluster.fails(client.create_ledger(ensemble_size=5, write_quorum=3)), ValueError)


# Of the client: what it says about a ledger.


def test_is_closed_asks_the_store():
    """It follows the metadata, and raises for an unknown ledger."""
    cluster = FakeCluster(3)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    assert cluster.succeed(client.is_closed(writer.id)) is False
    cluster.succeed(writer.close())
    assert cluster.succeed(client.is_closed(writer.id)) is True
    assert cluster.fails(client.is_closed(12345)).code == -25


def test_a_ledger_s_metadata_can_be_watched():
    """The watch reports each state, and `None` for the deletion."""
    cluster = FakeCluster(3)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    seen = []
    watch = client.watch_ledger(writer.id, lambda metadata: seen.append(None if metadata is None else metadata.state))
    cluster.spin(0.1)
    cluster.succeed(writer.close())
    cluster.spin(0.1)
    cluster.succeed(client.delete_ledger(writer.id))
    cluster.spin(0.1)
    assert seen == [LedgerState.OPEN, LedgerState.CLOSED, None]
    watch.cancel()


def test_ledgers_are_listed_by_pages():
    """Pages joined give all ids; after the last id the page is empty."""
    cluster = FakeCluster(3)
    client = cluster.client()
    ids = sorted(cluster.succeed(client.create_ledger()).id for _ in range(5))
    page = cluster.succeed(client.ledger_ids(limit=2))
    rest = cluster.succeed(client.ledger_ids(after=page[-1], limit=10))
    assert page + rest == ids
    assert cluster.succeed(client.ledger_ids(after=ids[-1])) == []


# Reading.


def written(cluster, count=10):
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.succeed(writer.append_many([b"%d" % number for number in range(count)]))
    cluster.succeed(writer.close())
    return writer.id


def asked_for_reads(cluster):
    return [request.bookie for request in cluster.pools[-1].asked if request.op in ("read", "batch")]


def test_a_sticky_reader_stays_with_one_replica_and_another_takes_turns():
    """Sticky reads use one bookie, others all three."""
    for sticky, bookies in ((True, 1), (False, 3)):
        cluster = FakeCluster(3)
        ledger = written(cluster)
        reader = cluster.succeed(cluster.client(sticky_reads=sticky).open_ledger(ledger))
        for entry in range(6):
            cluster.succeed(reader.read(entry, entry))
        assert len(set(asked_for_reads(cluster))) == bookies


def test_the_wait_for_another_replica_grows_within_a_read():
    """Speculative requests follow after 100 ms and 300 ms more; then the read times out."""
    cluster = FakeCluster(3)
    ledger = written(cluster)
    reader = cluster.succeed(
        cluster.client(speculative_read_ms=100, speculative_read_growth=3.0, read_timeout_ms=4000).open_ledger(ledger)
    )
    times = []
    cluster.judge = lambda request: (times.append(round(cluster.clock.seconds() - start, 2)), "drop")[1]
    start = cluster.clock.seconds()
    outcome = cluster.outcome(reader.read(3, 3))
    cluster.spin(20)
    assert times == [0.0, 0.1, 0.4], "after 100 ms, then after 300 more"
    assert outcome.code == -23


@pytest.mark.parametrize("batch", [True, False])
def test_a_damaged_copy_is_reported_and_another_one_read(batch):
    """All entries are returned and the reader lists the damaged copies."""
    cluster = FakeCluster(3)
    ledger = written(cluster)
    reader = cluster.succeed(cluster.client(batch_read=batch).open_ledger(ledger))
    for name in ("b0", "b1"):
        entries = cluster.bookies[name].ledgers[ledger].entries
        entries[4] = entries[4][:-1] + b"!"
    assert [entry.data for entry in cluster.succeed(reader.read(0, 9))] == [b"%d" % number for number in range(10)]
    assert reader.damaged
    assert reader.damaged <= {("b0", 4), ("b1", 4)}


def test_an_error_says_who_failed_how_which_quorum_is_missing_and_what_to_do():
    """The text has the bookies, codes, quorum and the next step."""
    cluster = FakeCluster(3)
    writer = created(cluster)
    cluster.succeed(writer.append(b"x"))
    cluster.kill("b0", "b1")
    text = str(cluster.fails(writer.append(b"y")))
    for part in (
        "the connection to b0 was lost (BookieHandleNotAvailable, code -8)",
        "to b1 was",
        "the ack quorum of 2",
        "start bookies",
        "all that are writable",
    ):
        assert part in text, text


def test_a_ledger_whose_copies_can_not_lie_apart_is_not_created(tmp_path):
    """
    Its entries could never be acknowledged.  Once the file names two racks it is created, and an entry waits for the
    second rack.
    """
    places = tmp_path / "places"
    places.write_text("b0 /r1\nb1 /r1\nb2 /r1\n")
    cluster = FakeCluster(3)
    options = {"enforce_domains": True, "topology": "file", "topology_file": str(places)}
    error = cluster.fails(cluster.client(**options).create_ledger())
    assert isinstance(error, NotEnoughBookies)
    assert "fewer than 2 racks" in str(error)
    assert "docs/placement.md" in str(error)
    places.write_text("b0 /r1\nb1 /r1\nb2 /r2\n")
    writer = cluster.succeed(cluster.client(**options).create_ledger())
    cluster.judge = lambda request: "hold" if request.op == "add" and request.bookie == "b2" else "pass"
    waiting = cluster.outcome(writer.append(b"a"))
    cluster.spin(0.2)
    assert not waiting.done
    cluster.let_go(lambda _request: True)
    cluster.spin(0.2)
    assert waiting.value == 0


def test_ensemble_changes_are_switched_off_and_on_at_run_time():
    """
    While they are off a bookie that died keeps its place; once they are on again it is replaced, also in a writer that
    is idle.
    """
    cluster = FakeCluster(5)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    cluster.succeed(writer.append(b"a"))
    first = writer.metadata.last_fragment.bookies
    client.disable_ensemble_change()
    cluster.kill(first[0])
    cluster.succeed(writer.append(b"b"))
    cluster.spin(1.0)
    assert (writer.ensemble_changes, writer.bookies_out) == (0, (first[0],))
    client.disable_ensemble_change(False)
    cluster.spin(1.0)
    assert (writer.ensemble_changes, writer.bookies_out) == (1, ())
    assert first[0] not in writer.metadata.last_fragment.bookies
    client.disable_ensemble_change()
    later = cluster.succeed(client.create_ledger())
    cluster.succeed(later.append(b"a"))
    lost = later.metadata.last_fragment.bookies[0]
    cluster.kill(lost)
    cluster.succeed(later.append(b"b"))
    cluster.spin(1.0)
    assert (later.ensemble_changes, later.bookies_out) == (0, (lost,)), "though there is a spare"


@pytest.mark.parametrize("changes_max", [-1, 1])
def test_changes_that_are_switched_off_while_one_is_under_way(changes_max):
    """
    It is the last: who failed meanwhile keeps its place, and appends wait for it instead of ending the writer, whether
    or not it may change again.
    """
    story = Story(shape=(3, 3, 3), limits=Limits(changes_max=changes_max))
    story.append(1)
    story.lose(0)
    assert story.changing
    story.lose(1)
    story.give(KeepEnsemble(True))
    story.changed(i0="b7", seen=("b2", "b7"))
    assert story.machine.state is State.OPEN
    assert not story.changing
    assert story.machine.out == ("b1",)
    assert story.ended is None
    story.ack(0, 0)
    story.ack(2, 0)
    assert story.released == -1
    story.give(BookiesSeen(frozenset(("b1", "b2", "b7"))))
    story.give(AlarmFired(Alarm.RETRY))
    story.ack(1, 0)
    assert story.released == 0


def test_a_bookie_that_lapsed_before_changes_were_switched_off_keeps_its_place():
    """It is replaced only after changes are permitted again."""
    story = Story(shape=(3, 3, 2))
    story.append(1)
    for index in (0, 1):
        story.ack(index, 0)
    story.lose(2)
    story.give(KeepEnsemble(True))
    story.append(1)
    assert not story.changing
    assert story.machine.out == ("b2",)
    for index in (0, 1):
        story.ack(index, 1)
    assert story.released == 1
    story.give(BookiesSeen(frozenset(("b0", "b1", "b5"))))
    assert not story.changing
    story.give(KeepEnsemble(False))
    assert story.changing, "a spare is there, and may be taken again"
