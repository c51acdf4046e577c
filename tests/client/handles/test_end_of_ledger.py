"""How far a ledger is confirmed: queries, tails, polls, hints that nothing vouches for (D14), ids out of order."""

import re

import pytest
from twisted.internet.defer import Deferred

from quire.client.connections.answers import Answer
from quire.client.handles.end_of_ledger import read_body
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import (
    BookieHandleNotAvailable,
    ClientClosed,
    DigestMatch,
    LedgerClosed,
    LedgerRecovery,
    NoSuchEntry,
    Read,
    Timeout,
    UnauthorizedAccess,
)
from tests.client.fakes.cluster import FakeCluster, Outcome
from tests.client.fakes.ledgers import collect, follow, payloads, written
from tests.client.handles.test_range_reader import DIGEST, LOST, Pool, body, fired

# SPDX-License-Identifier: Apache-2.0


def test_s27_an_open_without_recovery_disturbs_no_writer():
    """No bookie is fenced, the writer appends on, and unconfirmed entries can be read."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert not reader.closed
    assert reader.last_entry_id <= 9
    assert not any(bookie.ledgers[writer.id].fenced for bookie in cluster.bookies.values())
    assert cluster.succeed(writer.append(b"more")) == 10
    assert isinstance(cluster.fails(reader.read(0, 10)), Read)
    assert cluster.succeed(reader.read_last_confirmed()) == 9
    assert len(cluster.succeed(reader.read_unconfirmed(0, 10))) == 11


def test_the_last_add_confirmed_of_a_new_ledger():
    """It is -1."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert reader.last_entry_id == -1


def test_what_lies_before_the_last_fragment_is_confirmed():
    """
    R4: a writer's new fragment begins behind what was confirmed, so metadata alone says that much, whatever the
    bookies know.
    """
    cluster = FakeCluster(4)
    client, writer = written(cluster, 10, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    known = reader.last_entry_id
    cluster.kill(writer.metadata.last_fragment.bookies[0])
    cluster.succeed(writer.append(b"x"))
    first = writer.metadata.last_fragment.first
    assert first > known + 1, "the bookies reported less to the reader"
    cluster.judge = lambda request: "drop"
    cluster.spin(0.1)
    assert reader.last_entry_id == first - 1


def test_opening_without_recovery_needs_coverage():
    """With too few answers the open fails with an error of their kind."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie != "b0" else "pass"
    error = cluster.fails(client.open_ledger(writer.id, recover=False))
    assert isinstance(error, Timeout)
    assert "1 of 3 bookies answered" in str(error)
    cluster.judge = lambda request: -12 if request.op == "lac" and request.bookie != "b0" else "pass"
    assert type(cluster.fails(client.open_ledger(writer.id, recover=False))) is Read
    cluster.judge = lambda request: -102 if request.op == "lac" else "pass"
    error = cluster.fails(client.open_ledger(writer.id, recover=False))
    assert isinstance(error, UnauthorizedAccess)
    assert re.search(r"not known: b\d refused the password, or gives this client no right to that", str(error))


def test_who_failed_is_named_though_the_ensemble_changed_meanwhile():
    """Not the bookie that has its place by the time the answers are there."""
    cluster = FakeCluster(4)
    client, writer = written(cluster, 10, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    first, *_others = writer.metadata.last_fragment.bookies
    cluster.judge = lambda request: "pass" if request.op != "lac" else "hold" if request.bookie == first else -12
    asking = Outcome(reader.read_last_confirmed())
    cluster.kill(first)
    cluster.succeed(writer.append(b"x"))
    cluster.spin(0.1)
    cluster.let_go()
    cluster.spin(10)
    assert first not in reader.metadata.last_fragment.bookies
    assert f"{first} can't be reached" in str(asking.error)


def test_d14_a_bookies_unsigned_word_does_not_move_the_end():
    """A tail does not go past an entry that only a value without digest confirms."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    known = reader.last_entry_id
    for bookie in cluster.bookies.values():
        bookie.saw_lac(bookie.ledgers[writer.id], 1000)
    tail = cluster.succeed(collect(reader.tail(1.0)))
    assert len(tail) == known + 1
    assert reader.last_entry_id == known


def test_i8_the_visible_end_never_shrinks():
    """Bookies that know less answer later; what was seen stays seen."""
    cluster = FakeCluster()
    client, writer = written(cluster, 10, close=False)
    cluster.succeed(writer.append(b"x"))
    cluster.spin(0.1)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    seen = reader.last_entry_id
    for bookie in cluster.bookies.values():
        bookie.ledgers[writer.id].entries = {0: bookie.ledgers[writer.id].entries[0]}
    assert cluster.succeed(reader.read_last_confirmed()) == seen


def test_a_tail_follows_the_writer_to_the_close():
    """It delivers all entries in order and ends when the ledger is closed."""
    cluster = FakeCluster()
    _client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 10.0)
    for number in range(5, 40):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(0.05)
    assert 35 <= len(got) < 40
    assert not tail.done
    cluster.succeed(writer.close())
    cluster.spin(1)
    assert tail.code == 0
    assert payloads(got) == [b"%d" % number for number in range(40)]
    assert reader.closed


def test_a_tail_sees_news_without_waiting_for_a_time_out():
    """An append wakes the long poll and its entries are delivered within milliseconds."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, _tail = follow(cluster, reader, 10.0)
    cluster.spin(1)
    before = len(got)
    cluster.succeed(writer.append(b"a"))
    cluster.succeed(writer.append(b"b"))
    cluster.spin(0.03)
    assert len(got) > before


def test_a_tail_ends_after_silence():
    """Without news for the given time the tail ends well."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    cluster.succeed(writer.write_lac())
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 4.0)
    cluster.spin(3.5)
    assert not tail.done
    cluster.spin(1.0)
    assert tail.code == 0
    assert len(got) == 5


def test_a_tail_does_not_count_its_consumer_s_own_time():
    """Who works longer on an entry than the timeout is still given the next one."""
    cluster = FakeCluster()
    client, writer = written(cluster, 1, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    tail = reader.tail(1.0, 1)
    coming = Outcome(Deferred.fromCoroutine(anext(tail)))
    cluster.spin(0.3)
    cluster.succeed(writer.append(b"one"))
    cluster.succeed(writer.write_lac())
    cluster.spin(0.3)
    assert [entry.data for entry in coming.result()] == [b"one"]
    cluster.spin(1.5)
    cluster.succeed(writer.append(b"two"))
    cluster.succeed(writer.write_lac())
    assert [entry.data for entry in cluster.succeed(anext(tail))] == [b"two"]


def test_a_bookie_that_hangs_keeps_a_tail_neither_late_nor_blind():
    """One that could be an ack quorum by itself, so that how far the ledger is confirmed is not sure without it."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger(ack_quorum=1))
    cluster.succeed(writer.append(b"zero"))
    client = cluster.client(long_poll_ms=1000)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    hung = reader.metadata.last_fragment.bookies[(reader.id + 2) % 3]
    cluster.judge = lambda request: "drop" if request.bookie == hung and request.op == "lac" else "pass"
    got, tail = follow(cluster, reader, 4.0)
    cluster.spin(1.3)
    for number in range(4):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.succeed(writer.write_lac())
        cluster.spin(3.0)
        assert len(payloads(got)) == number + 2
    began = cluster.clock.seconds()
    while not tail.done:
        cluster.spin(0.1)
    assert cluster.clock.seconds() - began < 6


def test_a_tail_of_a_closed_ledger_is_a_read():
    """It delivers every entry and ends."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5)
    reader = cluster.succeed(client.open_ledger(writer.id))
    got, tail = follow(cluster, reader, 10.0)
    cluster.spin(0.1)
    assert tail.code == 0
    assert len(got) == 5


@pytest.mark.parametrize("dead", [0, 1, 2])
def test_a_tail_goes_on_when_a_bookie_dies_and_is_replaced(dead):
    """All entries are delivered, whichever bookie of the ensemble died."""
    cluster = FakeCluster(4)
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 20.0)
    cluster.spin(0.1)
    cluster.kill(cluster.metadata(writer.id).last_fragment.bookies[dead])
    for number in range(5, 30):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(0.2)
    cluster.succeed(writer.close())
    cluster.spin(5)
    assert tail.code == 0
    assert payloads(got) == [b"%d" % number for number in range(30)]


def test_a_tail_of_bookies_without_long_poll_asks_again_and_again():
    """Entries are delivered although every long poll is refused."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    cluster.judge = lambda request: -1 if request.op == "poll" else "pass"
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 5.0)
    for number in range(5, 10):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(0.5)
    assert len(got) >= 9
    cluster.succeed(writer.close())
    cluster.spin(1)
    assert tail.code == 0
    assert len(got) == 10


def test_a_tail_sees_the_end_that_a_recovery_finds():
    """When another client recovers the ledger, the tail delivers the rest and ends."""
    cluster = FakeCluster()
    client, writer = written(cluster, 20, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 10.0)
    cluster.spin(0.1)
    cluster.succeed(cluster.client().open_ledger(writer.id))
    cluster.spin(1)
    assert tail.code == 0
    assert len(got) == 20


def test_a_tail_of_a_deleted_ledger_ends():
    """A deletion ends the tail without an error."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    _got, tail = follow(cluster, reader, 100.0)
    cluster.spin(1)
    cluster.succeed(client.delete_ledger(writer.id))
    cluster.spin(5)
    assert tail.code == 0


def test_closing_the_reader_ends_its_tail():
    """The tail raises `ClientClosed`."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    _got, tail = follow(cluster, reader, 100.0)
    cluster.spin(1)
    cluster.succeed(reader.close())
    cluster.spin(5)
    assert isinstance(tail.error, ClientClosed)


def test_reading_with_everybody_down():
    """The read fails with the error for unreachable bookies."""
    cluster = FakeCluster()
    client, writer = written(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id))
    cluster.kill("b0", "b1", "b2")
    assert isinstance(cluster.fails(reader.read(0, 0)), BookieHandleNotAvailable)


def test_a_try_is_content_with_the_first_news():
    """One bookie that knows more is enough; without news it is what was known; without any answer it fails."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append_many([b"a", b"b"]))
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    cluster.succeed(writer.append_many([b"c"]))
    cluster.succeed(writer.append_many([b"d"]))
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie != "b1" else "pass"
    began = cluster.clock.seconds()
    assert cluster.succeed(reader.try_read_last_confirmed()) == 2
    assert cluster.clock.seconds() - began < 0.5, "it does not wait for the silent ones"
    assert isinstance(cluster.fails(reader.read_last_confirmed()), Timeout), "certainty takes more"
    assert cluster.succeed(reader.try_read_last_confirmed()) == 2
    cluster.judge = lambda request: -8 if request.op == "lac" else "pass"
    error = cluster.fails(reader.try_read_last_confirmed())
    assert isinstance(error, LedgerRecovery)
    assert all(f"{bookie} can't be reached" in str(error) for bookie in ("b0", "b1", "b2"))
    cluster.judge = lambda request: "pass" if request.op != "lac" else -7 if request.bookie == "b1" else -8
    assert cluster.succeed(reader.try_read_last_confirmed()) == 2, "who has nothing of the ledger has answered"
    cluster.judge = lambda _request: "pass"
    cluster.succeed(writer.close())
    cluster.spin(0.1)
    assert cluster.succeed(reader.try_read_last_confirmed()) == 3, "a closed ledger's end is in the metadata"


def test_the_last_entry_is_asked_for_again_while_the_ledger_is_open():
    """Each call returns the entry that is confirmed by then."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    assert isinstance(cluster.fails(reader.read_last_entry()), NoSuchEntry)
    for payload in (b"a", b"b", b"c"):
        cluster.succeed(writer.append(payload))
    assert cluster.succeed(reader.read_last_entry()) == (writer.id, 1, b"b")
    cluster.succeed(writer.close())
    closed = cluster.succeed(cluster.client().open_ledger(writer.id))
    assert cluster.succeed(closed.read_last_entry()) == (writer.id, 2, b"c")


@pytest.mark.parametrize(("wait_ms", "asked"), [(50, 3), (0, 1)])
def test_a_poll_that_lasts_is_sent_to_the_next_bookie_too(wait_ms, asked):
    """The bookie that is asked first hangs; another one has the news, and is asked first from then on."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"first"))  # else they would say that they have nothing of it
    client = cluster.client(speculative_poll_ms=wait_ms, long_poll_ms=900, read_timeout_ms=1000)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    first = reader.metadata.last_fragment.bookies[reader.id % 3]
    cluster.judge = lambda request: "drop" if request.op == "poll" and request.bookie == first else "pass"
    seen = []

    async def follow():
        async for entries in reader.tail(0.8):
            seen.extend(entry.data for entry in entries)

    tail = Outcome(Deferred.fromCoroutine(follow()))
    cluster.spin(0.5)
    polls = [request.bookie for request in client.pool.asked if request.op == "poll"]
    assert len(polls) == len(set(polls)) == asked
    cluster.succeed(writer.append_many([b"a"]))
    cluster.succeed(writer.append_many([b"b"]))
    cluster.spin(0.2)
    assert seen == ([b"first", b"a"] if asked == 3 else [])
    assert [request.bookie for request in client.pool.asked if request.op == "poll"][asked : asked + 1] != [first]
    cluster.judge = lambda _request: "pass"
    reader.close()
    cluster.spin(2.0)
    assert tail.done


@pytest.mark.parametrize(("long_poll_ms", "times"), [(900, [0, 50, 130, 210]), (100, [0, 50])])
def test_further_polls_go_out_after_longer_and_longer_waits_until_the_first_would_end(long_poll_ms, times):
    """The waits grow by the factor of the options up to their maximum."""
    cluster = FakeCluster(4)
    writer = cluster.succeed(cluster.client().create_ledger(ensemble_size=4, write_quorum=4))
    cluster.succeed(writer.append(b"first"))
    client = cluster.client(
        speculative_poll_ms=50, speculative_poll_ms_max=80, long_poll_ms=long_poll_ms, read_timeout_ms=1000
    )
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    asked = []

    def drop(request):
        if request.op == "poll":
            asked.append((request.bookie, cluster.clock.seconds()))
        return "drop" if request.op == "poll" else "pass"

    cluster.judge = drop
    tail = Outcome(Deferred.fromCoroutine(anext(reader.tail(0.6))))
    cluster.spin(0.5)
    assert [round(1000 * (at - asked[0][1])) for _bookie, at in asked] == times
    assert len({bookie for bookie, _at in asked}) == len(times)
    reader.close()
    cluster.spin(2.0)
    assert tail.done


@pytest.mark.parametrize("news", ["answer", "close of the ledger", "close of the reader"])
def test_once_there_is_news_no_other_is_polled(news):
    """An answer or a close ends the speculative poll of further bookies."""
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"first"))
    client = cluster.client(speculative_poll_ms=50, long_poll_ms=900)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))

    async def follow():
        async for _entries in reader.tail(0.8):
            pass

    tail = Outcome(Deferred.fromCoroutine(follow()))
    cluster.spin(0.02)
    if news == "answer":
        cluster.succeed(writer.append(b"second"))
    elif news == "close of the ledger":
        cluster.succeed(writer.close())
    else:
        reader.close()
    cluster.spin(0.035)  # the second bookie's turn would come
    assert tail.done == (news != "answer")
    assert sum(request.op == "poll" for request in client.pool.asked) == (2 if news == "answer" else 1), (
        "the next round begins with one"
    )
    reader.close()
    cluster.spin(1.0)
    assert tail.done


# Hints that nothing vouches for (D14), and ids out of order.


def out_of_order(cluster, shape=(3, 3, 2), count=10):
    """
    An advanced writer that wrote entries from 1000 on first: every bookie's highest entry carries an old last add
    confirmed.
    """
    writer = cluster.succeed(
        cluster.client().create_ledger(
            ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2], advanced=True
        )
    )
    early = [cluster.outcome(writer.append_at(entry, b"early")) for entry in range(1000, 1005)]
    cluster.spin(0.01)
    for entry in range(count):
        cluster.succeed(writer.append_at(entry, b"%d" % entry))
    cluster.spin(0.01)
    return writer, early


def requests(client):
    return sum(request.op in ("poll", "lac", "read", "batch") for request in client.pool.asked)


@pytest.mark.parametrize("shape", [(3, 3, 2), (3, 2, 2), (5, 3, 2)])
@pytest.mark.parametrize("options", [{}, {"batch_read": False}])
def test_a_tail_sees_what_is_confirmed_where_ids_are_out_of_order_and_then_waits(shape, options):
    """
    All but the last, which no later entry has confirmed; that comes with the next.  A few questions for each, and none
    while nothing happens.
    """
    cluster = FakeCluster(5)
    writer, early = out_of_order(cluster, shape)
    client = cluster.client(long_poll_ms=1000, read_timeout_ms=2000, **options)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert reader.last_entry_id == -1, "what the highest entries carry"
    got, tail = follow(cluster, reader, 30.0)
    cluster.spin(0.5)
    assert payloads(got) == [b"%d" % entry for entry in range(9)]
    before = requests(client)
    cluster.spin(10.0)
    assert requests(client) - before <= 10 * (1 + shape[0]), "one poll a second, and what it leads to"
    before = requests(client)
    for entry in range(10, 20):
        cluster.succeed(writer.append_at(entry, b"%d" % entry))
        cluster.spin(0.05)
        assert len(got) == entry, "as soon as the next entry says that it is confirmed"
    assert requests(client) - before <= 10 * (6 * shape[0])
    cluster.succeed(writer.close())
    cluster.spin(1)
    assert tail.code == 0
    assert payloads(got) == [b"%d" % entry for entry in range(20)]
    assert all(isinstance(outcome.error, LedgerClosed) for outcome in early)


def test_a_tail_finds_what_a_wide_window_confirmed_out_of_order():
    """
    Many entries carry the same old last add confirmed, only the last ones a newer one; the tail reads on until it meets
    those.
    """
    cluster = FakeCluster()
    writer = cluster.succeed(cluster.client().create_ledger(advanced=True))
    cluster.outcome(writer.append_at(1000, b"early"))
    cluster.spin(0.01)
    for start in (0, 100):
        for entry in range(start, start + 100):
            cluster.outcome(writer.append_at(entry, b"%d" % entry))
        cluster.spin(0.1)
    reader = cluster.succeed(cluster.client().open_ledger(writer.id, recover=False))
    got, _tail = follow(cluster, reader, 30.0)
    cluster.spin(1)
    assert len(got) >= 100
    cluster.succeed(writer.write_lac())
    cluster.spin(1)
    assert len(got) == 200


@pytest.mark.parametrize("liars", [1, 2, 3])
@pytest.mark.parametrize("long_poll_ms", [200, 3000])
def test_a_bookie_that_holds_a_wrong_lac_neither_stops_a_tail_nor_makes_it_spin(liars, long_poll_ms):
    """News is seen at once while another bookie is asked, and within the rest if none but liars are there."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0, close=False, long_poll_ms=long_poll_ms)
    for number in range(3):
        cluster.succeed(writer.append(b"%d" % number))
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, tail = follow(cluster, reader, 1000.0)
    for name in sorted(cluster.bookies)[:liars]:
        cluster.bookies[name].saw_lac(cluster.bookies[name].ledgers[writer.id], 1_000_000)
    cluster.spin(10.0)  # long enough for whatever grows to have grown
    before = requests(client)
    cluster.spin(10.0)
    rest = min(1.0, long_poll_ms / 1000)
    assert requests(client) - before <= 10 / rest * 20
    for number in range(3, 20):
        cluster.succeed(writer.append(b"%d" % number))
        cluster.spin(rest + 0.1)
        assert len(got) >= number
    assert not tail.done
    cluster.succeed(writer.close())
    cluster.spin(0.1)
    assert tail.code == 0
    assert len(got) == 20


def test_a_bookie_that_answers_every_poll_at_once_is_asked_less_and_less():
    """As one that knows no long poll and says so by no error."""
    cluster = FakeCluster()
    client, writer = written(cluster, 5, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    poll = client.pool.long_poll
    client.pool.long_poll = lambda bookie, ledger, lac, _timeout_ms: poll(bookie, ledger, lac, 1)
    _got, _tail = follow(cluster, reader, 1000.0)
    cluster.spin(1.0)
    assert requests(client) > 5
    before = requests(client)
    cluster.spin(10.0)
    assert requests(client) - before <= 11 * 4


def test_fresh_news_costs_a_tail_one_poll_and_two_questions_of_one_bookie():
    """Each append causes one poll, then one LAC request and one batch read of the bookie that had the news."""
    cluster = FakeCluster()
    client, writer = written(cluster, 0, close=False)
    cluster.succeed(writer.append(b"0"))
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    got, _tail = follow(cluster, reader, 1000.0)
    cluster.spin(0.1)
    for number in range(1, 20):
        before = len(client.pool.asked)
        cluster.succeed(writer.append(b"%d" % number))
        began = cluster.clock.seconds()
        while len(got) < number:
            cluster.spin(0.0005)
        assert cluster.clock.seconds() - began < 0.006, "as long as two questions and answers take"
        cluster.spin(0.03)
        asked = client.pool.asked[before:]
        assert sorted(request.op for request in asked) == ["batch", "lac", "poll"]
        assert len({request.bookie for request in asked[:2]}) == 1


def test_what_comes_along_with_news_is_shown_only_up_to_what_is_verified():
    """D8, D14: a bookie claims 5 where the entries that it gives vouch for 1; a tail shows 0 and 1."""
    cluster = FakeCluster()
    bookies = ["b0", "b1", "b2"]
    ledger = cluster.ledger({0: bookies}, 3, 2)
    cluster.put(ledger, 0, b"0", -1, 1, *bookies)
    reader = cluster.succeed(cluster.client().open_ledger(ledger, recover=False))
    got, _tail = follow(cluster, reader, 1000.0)
    cluster.spin(0.1)
    digest = Digest(DigestType.CRC32C, b"")
    for name in bookies:
        stored = cluster.bookies[name].ledgers[ledger]
        for entry in range(1, 6):
            stored.entries[entry] = digest.entry(ledger, entry, min(1, entry - 1), entry + 1, b"%d" % entry)
        cluster.bookies[name].saw_lac(stored, 5)
    cluster.spin(5.0)
    assert payloads(got) == [b"0", b"1"]
    assert reader.last_entry_id == 1


# How far it is stored.


def unfinished(cluster, count=3):
    """A ledger with confirmed entries, and one more that only one bookie has: it is not acknowledged."""
    client, writer = written(cluster, count, close=False)
    cluster.judge = lambda request: "drop" if request.op == "add" and request.bookie != "b0" else "pass"
    cluster.outcome(writer.append(b"only on b0"))
    cluster.spin(0.1)
    return client, writer


def test_the_horizon_is_what_is_stored_and_disturbs_nobody():
    """An acknowledged entry is above the last add confirmed until the next one: the horizon counts it."""
    cluster = FakeCluster()
    client, writer = written(cluster, 3, close=False)
    assert cluster.succeed(writer.append(b"more")) == 3
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    lac, horizon = cluster.succeed(reader.read_horizon())
    assert (lac, horizon) == (2, 3)
    assert not any(bookie.ledgers[writer.id].fenced for bookie in cluster.bookies.values())
    assert cluster.succeed(writer.append(b"on")) == 4


def test_the_horizon_counts_what_a_single_bookie_has_where_it_is_heard():
    """It may have been acknowledged; without that bookie it can't have been."""
    cluster = FakeCluster()
    client, writer = unfinished(cluster)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie == "b2" else "pass"
    assert cluster.succeed(reader.read_horizon())[1] == 3
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie == "b0" else "pass"
    assert cluster.succeed(reader.read_horizon())[1] == 2


def test_a_bookie_whose_last_entry_is_damaged_is_not_heard():
    """What it holds is not known; the error names it."""
    cluster = FakeCluster()
    client, writer = written(cluster, 4, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    entries = cluster.bookies["b0"].ledgers[writer.id].entries
    entries[3] = entries[3][:-1] + b"X"
    assert cluster.succeed(reader.read_horizon())[1] == 3, "the others say it"
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie == "b1" else "pass"
    error = cluster.fails(reader.read_horizon())
    assert "b0 sent bytes whose digest is wrong" in str(error)
    cluster.succeed(reader.read_last_confirmed())  # which what it says of that is enough for


def test_the_horizon_of_a_closed_ledger_is_its_end():
    """Its metadata is read anew, and no bookie is asked."""
    cluster = FakeCluster()
    client, writer = written(cluster, 4, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    cluster.succeed(writer.close())
    cluster.judge = lambda request: "drop"
    assert cluster.succeed(reader.read_horizon()) == (3, 3)


def test_the_horizon_is_not_below_the_last_fragment():
    """A fragment begins behind what was confirmed, and the new ensemble may hold nothing yet."""
    cluster = FakeCluster(4)
    client, writer = written(cluster, 4, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    cluster.kill(writer.metadata.last_fragment.bookies[0])
    cluster.judge = lambda request: "drop" if request.op == "add" and request.entry >= 4 else "pass"
    cluster.outcome(writer.append(b"x"))
    cluster.spin(0.5)
    metadata = cluster.metadata(writer.id)
    assert metadata.last_fragment.first == 4
    for bookie in metadata.last_fragment.bookies:
        cluster.bookies[bookie].ledgers.pop(writer.id, None)
    assert cluster.succeed(reader.read_horizon())[1] == 3


def test_a_horizon_without_enough_answers_fails():
    """With an error of their kind."""
    cluster = FakeCluster()
    client, writer = written(cluster, 4, close=False)
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    cluster.judge = lambda request: "drop" if request.op == "lac" and request.bookie != "b0" else "pass"
    assert isinstance(cluster.fails(reader.read_horizon()), Timeout)
    cluster.judge = lambda request: -102 if request.op == "lac" else "pass"
    assert isinstance(cluster.fails(reader.read_horizon()), UnauthorizedAccess)


# A close that confirms more.


def test_what_only_a_close_confirms_is_told_apart():
    """A tail that does not go past the close ends at the last add confirmed that was seen before it."""
    cluster = FakeCluster()
    client, writer = written(cluster, 3, close=False)
    cluster.succeed(writer.write_lac())
    reader = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert cluster.succeed(writer.append(b"last")) == 3
    got = []

    async def run():
        async for some in reader.tail(30, 0, past_close=False):
            got.extend(some)

    ended = cluster.outcome(run())
    cluster.spin(0.1)
    cluster.succeed(writer.close())
    cluster.spin(5)
    assert (ended.error, len(got)) == (None, 3)
    assert (reader.last_entry_id, reader.confirmed_entry_id) == (3, 2)
    again = cluster.succeed(client.open_ledger(writer.id, recover=False))
    assert (again.last_entry_id, again.confirmed_entry_id) == (3, -1), "nothing was seen before the close"


def test_a_body_comes_from_the_first_replica_whose_copy_is_right():
    """With header and digest; when no replica has it the error names each and what it did."""
    pool = Pool()
    asking = Deferred.fromCoroutine(read_body(pool, 7, DIGEST, ["b0", "b1", "b2"], 4))
    pool.waiting[0].callback(Answer(LOST))
    pool.waiting[1].callback(Answer(0, b"junk" * 20))
    pool.waiting[2].callback(Answer(0, body(4)))
    assert fired(asking) == body(4)
    asking = Deferred.fromCoroutine(read_body(pool, 7, DIGEST, ["b0", "b1"], 4))
    pool.waiting[3].callback(Answer(0, body(5)))
    pool.waiting[4].callback(Answer(LOST))
    error = fired(asking)
    assert isinstance(error, DigestMatch)
    assert "entry 4 of ledger 7" in str(error)
    assert "b0 " in str(error)
    assert "b1 " in str(error)
