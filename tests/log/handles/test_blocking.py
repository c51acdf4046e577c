"""Owners, readers and publishers of the blocking face on real bookies."""

import pickle
import threading
from concurrent.futures import wait

import pytest

import quire.log as quire
from quire.log import LogOptions, connect
from quire.log.owner.appending.appends import Position
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("blocking"), 3) as made:
        yield made


@pytest.fixture
def logs(cluster, request):
    """With a log named as the test."""
    with connect(cluster.uri) as made:
        made.create(request.node.name)
        yield made


@pytest.fixture
def name(request):
    return request.node.name


def test_single_appends_of_many_threads_travel_together(logs, name):
    """Indexes are unique and dense, and each record is where its future said."""
    found = {}
    with logs.own(name) as owner:

        def work(number):
            payloads = [b"%d-%d" % (number, each) for each in range(500)]
            futures = [(owner.append_async(payload, key=payload[:1]), payload) for payload in payloads]
            found.update((future.result(), payload) for future, payload in futures)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(place.index for place in found) == list(range(2000))
    with logs.read(name) as reader:
        assert {Position(record.index, record.at): record.value for record in reader} == found
    with logs.read(name) as reader:
        batches = list(reader.batches())
        assert sum(batch.count for batch in batches) == 2000
        assert len(batches) < 500
        assert reader.index == 2000


def test_appends_of_different_kinds_keep_their_order(cluster, name):
    """With and without keys, times and headers, larger than an entry and small; all by futures, closed at once."""
    with connect(cluster.uri, LogOptions(batch_bytes=1000)) as logs:
        logs.create(name)
        given = [(b"%d" % number * (1 + number % 7 * 500), b"k" if number % 3 else None) for number in range(200)]
        with logs.own(name) as owner:
            futures = [owner.append_async(value, key=key) for value, key in given]
            futures.append(owner.append_async(b"last", time_ms=1, headers=[("a", b"b")]))
        assert [future.result(0).index for future in futures] == list(range(201))
        with logs.read(name) as reader:
            records = list(reader)
        assert [(record.value, record.key) for record in records] == [*given, (b"last", None)]
        assert [record.at for record in records] == [future.result().at for future in futures]
        assert records[-1].headers == (("a", b"b"),)


def test_a_hook_that_raises_fails_one_of_those_that_travel_together(logs, name):
    """It is asked on the reactor's thread; the others are stored as it gave them."""

    def hook(_first, _at, _stamp, values):
        if b"bad" in values:
            raise ValueError("no such thing")
        return [value.upper() for value in values]

    with logs.own(name, before_append=hook) as owner:
        futures = [owner.append_async(b"bad" if number % 10 == 3 else b"v%d" % number) for number in range(40)]
        failed = [number for number, future in enumerate(futures) if future.exception(60) is not None]
        assert failed == [3, 13, 23, 33]
        assert isinstance(futures[3].exception(), ValueError)
    with logs.read(name) as reader:
        assert [record.value for record in reader] == [b"V%d" % number for number in range(40) if number % 10 != 3]


def test_appends_wait_for_room(cluster, name):
    """Never more than the window is under way; one call that is larger than it waits until it is alone."""
    with connect(cluster.uri, LogOptions(window_records=8)) as logs:
        logs.create(name)
        with logs.own(name) as owner:
            futures = []
            for number in range(200):
                futures.append(owner.append_async(b"%d" % number))
                assert sum(not future.done() for future in futures) <= 9
                if number % 50 == 0:
                    done = owner.append_many([b"many"] * 20)
                    assert len(done.indexes) == 20
            wait(futures, 60)
            assert sorted(future.result().index for future in futures)[-1] == 279
            assert owner.barrier().index == 280


def test_wrong_arguments_are_python_s_own_errors(logs, name):
    """At once, in the caller's thread; other appends are not touched."""
    with logs.own(name) as owner:
        first = owner.append_async(b"kept")
        for call in (
            lambda: owner.append("text"),
            lambda: owner.append_async(b"x", key="text"),
            lambda: owner.append_many([b"x", 3]),
            lambda: owner.append(b"x", headers=[("name", "text")]),
        ):
            with pytest.raises(TypeError):
                call()
        with pytest.raises(ValueError, match="key of 70000 bytes"):
            owner.append(b"x", key=b"k" * 70_000)
        with pytest.raises(ValueError, match="2 values"):
            owner.append_many([b"x", b"y"], keys=[b"k"])
        assert owner.append_many([]).indexes == range(0)
        assert owner.append_many(iter([b"from", b"an", b"iterator"])).indexes == range(1, 4)
        assert first.result().index == 0
    with pytest.raises(quire.LogExists):
        logs.create(name)
    with pytest.raises(ValueError, match="no setting colour"):
        logs.update(name, colour="red")
    with pytest.raises(ValueError, match="begins at an index"):
        logs.read(name, -1)


def test_a_reader_goes_on_where_it_was_left(logs, name):
    """An iteration that is left early loses nothing, though the next batch was on its way."""
    with logs.own(name) as owner:
        for start in range(0, 100, 10):
            owner.append_many([b"%d" % number for number in range(start, start + 10)])
            owner.roll()
    with logs.read(name) as reader:
        seen = []
        for record in reader:
            seen.append(record.value)
            if record.index == 13:
                break
        assert reader.index == 14
        for batch in reader.batches():
            seen += batch.values
            if batch.end > 40:
                break
        assert reader.index == 50
        seen += [record.value for record in reader.tail(timeout=0.05)]
        assert seen == [b"%d" % number for number in range(100)]
        assert list(reader) == []
        assert not reader.terminated


def test_a_tail_follows_an_owner_of_another_handle(cluster, logs, name):
    """Records come while it waits, over a rollover; it ends after silence."""
    seen = []
    more = threading.Event()
    with connect(cluster.uri) as other:

        def follow():
            with other.read(name) as reader:
                for record in reader.tail(timeout=60.0):
                    seen.append(record.value)
                    more.set()
                    if len(seen) == 3:
                        return

        follower = threading.Thread(target=follow)
        follower.start()
        with logs.own(name) as owner:
            owner.append(b"a")
            assert more.wait(60)
            owner.roll()
            owner.append_many([b"b", b"c"])
            follower.join(60)
    assert seen == [b"a", b"b", b"c"]


def test_a_log_is_taken_and_handed_over(cluster, logs, name):
    """By force: the former owner is called and refused, and its block's own error comes out; and by token."""
    called = threading.Event()
    with connect(cluster.uri) as other:
        with pytest.raises((quire.LogFenced, quire.NotOwner)), logs.own(name) as first:  # noqa: PT012  # the block's own
            first.on_lost = called.set
            assert first.on_lost is not None
            assert [(each.token, each.owns) for each in logs.candidates(name)] == [(first.token, True)]
            first.append(b"mine")
            with pytest.raises(quire.NotOwner):
                other.own(name, wait_s=0.2)
            second = other.own(name, force=True)
            assert second.append(b"taken").index == 1
            assert called.wait(60)
            assert first.lost
            first.append(b"late")
        second.transfer(second.token)
        with pytest.raises(quire.NotOwner):
            second.append(b"handed over")
        with logs.own(name) as third:
            assert (third.epoch, third.append(b"again").index) == (3, 2)


def test_closed_ledgers_are_published(logs, name):
    """Parts are written, pickled, published once; an aborted batch leaves nothing."""
    sink = logs.sink(name, "txn", "run")
    writer = sink.part(0, 0, 0)
    assert writer.append_many(iter([b"a", b"b"]), keys=[b"1", None]) == 2
    part = pickle.loads(pickle.dumps(writer.close()))
    receipt = sink.commit(0, [part])
    assert (receipt.first, receipt.end, receipt.again) == (0, 2, False)
    assert sink.commit(0, [part]).again
    with logs.read(name) as reader:
        assert [(record.value, record.key) for record in reader] == [(b"a", b"1"), (b"b", None)]
    assert [(txn.txn, txn.run, txn.last) for txn in logs.txns(name)] == [("txn", "run", 0)]
    dropped = sink.part(1, 0, 0)
    dropped.append_many([b"never"])
    dropped.discard()
    writer = sink.part(1, 1, 0)
    writer.append_many([b"never"])
    left = writer.close()
    sink.abort(1)
    assert sink.janitor() == 0
    with pytest.raises(quire.PublishRefused):
        sink.commit(1, [left])


def test_an_owner_trims_and_ends_its_log(logs, name):
    """What was appended is stored first; a reader ends where the log does."""
    with logs.own(name) as owner:
        owner.append_many([b"a", b"b"])
        owner.roll()
        futures = [owner.append_async(b"c"), owner.append_async(b"d")]
        assert owner.trim(1) == 1
        assert owner.terminate().index == 4
        assert [future.result(0).index for future in futures] == [2, 3]
        with pytest.raises(quire.LogTerminated):
            owner.append(b"late")
    with logs.read(name) as reader:
        assert [record.value for record in reader.tail(timeout=60.0)] == [b"b", b"c", b"d"]
        assert reader.terminated
        assert not reader.closed
    assert reader.closed


def test_what_is_built_on_a_log(cluster):
    """Its use, its child record, skips of parts, batches by their place, and a snapshot of what was published."""
    with connect(cluster.uri) as logs:
        logs.create("built", begin_at=100, use="messages", children={"store": b"{}"})
        with pytest.raises(ValueError, match="kept by `quire messages`"):
            logs.own("built", wait_s=0)
        sink = logs.sink("built", "import", "run", use="messages")
        part = sink.part(0, 0, 0)
        assert part.append_many([b"one", b"two"], skips=[0, 10]) == 2
        sink.commit(0, [part.close()])
        with logs.read("built") as reader:
            (batch,) = reader.batches()
            assert batch.positions == [100, 113]
            assert reader.begin_at == 100
            assert [each.values for each in reader.entries([batch.place])] == [[b"one", b"two"]]
        assert logs.entries("built", [batch.place])[0].index == 0
        info = logs.info("built")
        assert (info.begin_at, info.end_at) == (100, 116)
        assert logs.save_snapshot("built", 2, iter([b"sta", b"te"]), "table/1", use="messages") == 2
        assert [each.machine for each in logs.snapshots("built")] == ["table/1"]
        with pytest.raises(TypeError, match="pieces of bytes"):
            logs.save_snapshot("built", 2, b"state", "table/1", use="messages")
        value, version = logs.child("built", "store")
        logs.write_child("built", "store", value + b" ", version)
        logs.delete("built", use="messages")
