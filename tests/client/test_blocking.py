"""The blocking face on real bookies: everything that docs/client.md shows, wrong arguments, failures, back-pressure."""

import queue
import threading
from concurrent.futures import wait

import pytest

import quire.client as quire
from quire.client import ClientOptions, connect
from quire.metadata.ledger import LedgerState
from tests.reactor import run
from tests.real_cluster import RealCluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with RealCluster(tmp_path_factory.mktemp("blocking"), 3) as made:
        yield made


@pytest.fixture(params=["v2", "v3"])
def bk(cluster, request):
    with connect(cluster.uri, ClientOptions(protocol=request.param)) as client:
        yield client


def test_the_example_of_the_manual(bk):
    """Create, append in three ways, open, read, iterate, list, metadata, delete."""
    with bk.create_ledger(
        ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"", digest="CRC32C", custom_metadata={"app": b"demo"}
    ) as writer:
        assert isinstance(writer.id, int)
        assert writer.append(b"one") == 0
        assert writer.append_many([b"two", b"three"]) == range(1, 3)
        assert writer.append_async(b"four").result() == 3
        assert (writer.last_add_confirmed, writer.last_add_pushed, writer.length) == (3, 3, 15)
        assert writer.metadata.custom == {"app": b"demo"}
    with bk.open_ledger(writer.id, password=b"") as reader:
        assert (reader.last_entry_id, reader.length, reader.closed, reader.id) == (3, 15, True, writer.id)
        assert reader.read(0, 2) == [(writer.id, 0, b"one"), (writer.id, 1, b"two"), (writer.id, 2, b"three")]
        assert [entry.data for entry in reader] == [b"one", b"two", b"three", b"four"]
    assert writer.id in list(bk.ledgers())
    assert bk.metadata(writer.id).state is LedgerState.CLOSED
    bk.delete_ledger(writer.id)
    bk.delete_ledger(writer.id)
    assert writer.id not in list(bk.ledgers())
    with pytest.raises(quire.NoSuchLedger) as refusal:
        bk.open_ledger(writer.id)
    assert refusal.value.code == -25


def test_many_entries_come_back_in_order(bk):
    """More than a window and more than a batch read, written from an iterator."""
    payloads = [b"%d:" % number + b"x" * (number % 50) for number in range(30_000)]
    with bk.create_ledger() as writer:
        assert writer.append_many(iter(payloads)) == range(30_000)
    with bk.open_ledger(writer.id) as reader:
        assert [entry.data for entry in reader] == payloads


def test_single_appends_of_many_threads_travel_together(bk):
    """Ids are unique and dense, each payload is where its future said, and far fewer batches than appends were sent."""
    with bk.create_ledger() as writer:
        found: dict[int, bytes] = {}

        def work(number: int) -> None:
            futures = [
                (writer.append_async(b"%d-%d" % (number, each)), b"%d-%d" % (number, each)) for each in range(500)
            ]
            found.update((future.result(), payload) for future, payload in futures)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert sorted(found) == list(range(2000))
    with bk.open_ledger(writer.id) as reader:
        assert {entry.entry_id: entry.data for entry in reader} == found


def test_append_async_waits_for_room(cluster):
    """Back-pressure reaches the caller: never more than the window is under way."""
    with connect(cluster.uri, ClientOptions(window_entries_max=8)) as bk, bk.create_ledger() as writer:
        futures = []
        for number in range(200):
            futures.append(writer.append_async(b"%d" % number))
            confirmed = writer.last_add_confirmed  # what has room for others may still be told
            assert sum(not future.done() for future in futures[confirmed + 1 :]) <= 9
        wait(futures, 10)
        assert [future.result() for future in futures] == list(range(200))


def test_close_waits_for_what_is_under_way(bk):
    """Appends before the close complete, and later ones raise `LedgerClosed`."""
    writer = bk.create_ledger()
    futures = [writer.append_async(b"x") for _ in range(100)]
    writer.close()
    assert [future.result(0) for future in futures] == list(range(100))
    with pytest.raises(quire.LedgerClosed):
        writer.append(b"late")


def test_a_reader_that_fences_takes_the_ledger_from_its_writer(bk):
    """LedgerFenced at the next append; leaving the block then hides nothing and writes nothing."""
    # the block's own error must come out
    with pytest.raises(quire.LedgerFenced), bk.create_ledger() as writer:  # noqa: PT012
        writer.append(b"mine")
        with bk.open_ledger(writer.id) as reader:
            assert (reader.last_entry_id, reader.closed) == (0, True)
        writer.append(b"too late")
    assert bk.metadata(writer.id).last_entry == 0


def test_looking_does_not_disturb_and_tail_follows_to_the_close(bk):
    """recover=False; a tail sees what comes while it waits and ends at the close."""
    with bk.create_ledger() as writer, bk.open_ledger(writer.id, recover=False) as reader:
        writer.append_many([b"a", b"b"])
        writer.write_lac()
        seen: list[bytes] = []
        more = threading.Event()

        def follow() -> None:
            for entry in reader.tail(timeout=60.0):
                seen.append(entry.data)
                more.set()

        follower = threading.Thread(target=follow)
        follower.start()
        assert more.wait(60)
        writer.append(b"c")
        writer.write_lac()
        writer.close()
        follower.join(60)
        assert seen == [b"a", b"b", b"c"]


def test_tail_ends_after_silence(bk):
    """A tail without news ends, and the reader can be used on."""
    with bk.create_ledger() as writer, bk.open_ledger(writer.id, recover=False) as reader:
        assert list(reader.tail(timeout=0.2)) == []
        assert reader.read_last_confirmed() == -1
        writer.append(b"quiet")
        assert [entry.data for entry in reader.read_unconfirmed(0, 0)] == [b"quiet"]


def test_an_iteration_may_be_left_early_and_begun_again(bk):
    """Each iteration begins at the first entry and a full one has all of them."""
    with bk.create_ledger() as writer:
        writer.append_many([b"%d" % number for number in range(5000)])
    with bk.open_ledger(writer.id) as reader:
        for entry in reader:
            if entry.entry_id == 10:
                break
        assert next(iter(reader)).entry_id == 0
        assert sum(1 for _ in reader) == 5000


def test_advanced_writers_choose_their_ids(bk):
    """Own ledger and entry ids are kept, and duplicates of either raise."""
    ledger = max(bk.ledgers(), default=0) + (1 << 40)
    with bk.create_ledger(ledger_id=ledger, advanced=True) as writer:
        assert writer.id == ledger
        assert writer.append_at(0, b"zero") == 0
        assert writer.append_at(1, b"one") == 1
        with pytest.raises(quire.DuplicateEntryId):
            writer.append_at(1, b"again")
    with pytest.raises(quire.LedgerExist):
        bk.create_ledger(ledger_id=ledger)


def test_deferred_sync_is_confirmed_by_force(bk):
    """Only `force` moves the last confirmed entry."""
    with bk.create_ledger(write_flags="DEFERRED_SYNC") as writer:
        writer.append_many([b"a", b"b"])
        assert writer.last_add_confirmed == -1
        writer.force()
        assert writer.last_add_confirmed == 1


def test_passwords_and_digests(bk):
    """A wrong password is refused before anything is touched; every digest works."""
    for digest in ("CRC32C", "CRC32", "MAC", "DUMMY"):
        with bk.create_ledger(password=b"secret", digest=digest) as writer:
            writer.append(b"x")
        with pytest.raises(quire.UnauthorizedAccess):
            bk.open_ledger(writer.id, password=b"guess")
        with bk.open_ledger(writer.id, password=b"secret") as reader:
            assert [entry.data for entry in reader] == [b"x"]


def test_wrong_arguments_are_python_s_own_errors(bk):
    """TypeError for what isn't bytes, ValueError for what makes no sense; nothing is appended."""
    with bk.create_ledger() as writer:
        for call in (
            lambda: writer.append("text"),
            lambda: writer.append_many([b"x", "text"]),
            lambda: writer.append_async(3),
        ):
            with pytest.raises(TypeError):
                call()
        assert writer.append(bytearray(b"bytes-like")) == 0
        assert writer.append_many([memoryview(b"too")]) == range(1, 2)
        assert writer.append_many([]) == range(2, 2)
        with pytest.raises((ValueError, quire.LedgerError)):
            writer.append(b"x" * (6 << 20))
        assert writer.append(b"still open") == 2
    for wrong in ({"ensemble_size": 2}, {"ack_quorum": 4}, {"digest": "MD5"}, {"write_flags": "LATER"}):
        with pytest.raises(ValueError):  # noqa: PT011  # four different texts
            bk.create_ledger(**wrong)
    with pytest.raises(quire.NotEnoughBookies, match="5"):
        bk.create_ledger(ensemble_size=5)
    with pytest.raises(TypeError, match="'app' with a str"):
        bk.create_ledger(custom_metadata={"app": "text"})
    with pytest.raises(ValueError, match="metadata"):
        connect("nowhere")
    with pytest.raises(TypeError, match="options are a ClientOptions, or None for the defaults, not dict"):
        connect("memory://x", {"protocol": "v3"})
    with pytest.raises(quire.MetaStore):
        connect("memory://holds-no-cluster")


def test_a_closed_client_says_so(cluster):
    """Calls on it raise `ClientClosed`, a second close is ignored, and its writers fail."""
    bk = connect(cluster.uri)
    writer = bk.create_ledger()
    bk.close()
    bk.close()
    with pytest.raises(quire.ClientClosed):
        bk.create_ledger()
    with pytest.raises(quire.LedgerError):
        writer.append(b"x")


def test_a_blocking_call_from_the_reactor_is_refused(bk, cluster):
    """connect, append, iteration: each raises instead of hanging the process."""
    with bk.create_ledger() as writer:

        async def story() -> None:
            for call in (
                lambda: connect(cluster.uri),
                lambda: writer.append(b"x"),
                writer.close,
                lambda: next(bk.ledgers()),
            ):
                with pytest.raises(RuntimeError, match=r"quire\.client\.api"):
                    call()

        run(story)


def test_every_error_of_the_tree_is_reachable_from_the_package():
    """`quire.client.LedgerError` and everything below it, with codes."""
    from quire.protocol import errors

    for code, kind in errors.BY_CODE.items():
        if -400 < code <= -300:  # of logs, which have a package of their own
            continue
        assert getattr(quire, kind.__name__) is kind
        assert issubclass(kind, quire.LedgerError)
    assert issubclass(quire.NoSuchLedgerExists, quire.NoSuchLedger)


def test_a_bookie_that_dies_is_replaced_and_nothing_is_lost(tmp_path):
    """Kill one of four while appending; the ledger goes on, and reads back whole."""
    with RealCluster(tmp_path, 4) as cluster, connect(cluster.uri) as bk:
        payloads = [b"%06d" % number for number in range(6000)]
        with bk.create_ledger() as writer:
            writer.append_many(payloads[:2000])
            cluster.kill(writer.metadata.last_fragment.bookies[1])
            writer.append_many(payloads[2000:4000])
            futures = [writer.append_async(payload) for payload in payloads[4000:]]
            assert [future.result(60) for future in futures] == list(range(4000, 6000))
            assert len(writer.metadata.fragments) == 2
        with bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == payloads


def test_metadata_is_watched_until_the_watch_is_closed(cluster):
    """The present state first, then changes, None after the deletion; nothing after `close`."""
    news = queue.Queue()
    with connect(cluster.uri) as bk:
        writer = bk.create_ledger()
        with bk.watch_ledger(writer.id, news.put):
            assert news.get(timeout=60).state is LedgerState.OPEN
            writer.close()
            assert news.get(timeout=60).state is LedgerState.CLOSED
            bk.delete_ledger(writer.id)
            assert news.get(timeout=60) is None
        with bk.create_ledger() as writer, bk.watch_ledger(writer.id, news.put):
            assert news.get(timeout=60).state is LedgerState.OPEN
        assert bk.is_closed(writer.id)
        assert news.empty()


def test_the_last_entry_and_a_try_at_the_last_add_confirmed(cluster):
    """Both return what is confirmed, on an open and on a closed ledger."""
    with connect(cluster.uri) as bk:
        with bk.create_ledger() as writer:
            writer.append_many([b"a", b"b"])
            writer.append(b"c")
            with bk.open_ledger(writer.id, recover=False) as reader:
                assert reader.try_read_last_confirmed() >= 1
                assert reader.read_last_entry().data in (b"b", b"c")
        with bk.open_ledger(writer.id) as reader:
            assert reader.try_read_last_confirmed() == 2
            assert reader.read_last_entry() == (writer.id, 2, b"c")
