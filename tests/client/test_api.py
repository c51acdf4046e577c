"""
The Twisted face on a fake cluster: the life of a ledger from create to delete, arguments, ids, closing the client.
"""

import pytest
from twisted.internet.defer import Deferred, fail, succeed

import quire.client.handles.writer as writing
from quire.client import api
from quire.client.core.append.machine import AppendMachine
from quire.client.core.append.messages import AppendMode
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerState
from quire.metadata.memory.cluster import Fault, MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.uri import open_store
from quire.protocol.digest import DigestType
from quire.protocol.errors import (
    ClientClosed,
    IllegalOp,
    IncorrectParameter,
    LedgerClosed,
    LedgerExist,
    MetaStore,
    NoSuchLedger,
    NotEnoughBookies,
    UnauthorizedAccess,
)
from tests.client.fakes.cluster import FakeCluster, VirtualReactor
from tests.metadata import stored


async def collect(generator):
    return [entry async for batch in generator for entry in batch]


def test_create_append_close_read():
    """What was appended is read back, in order, after the close."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    assert cluster.succeed(writer.append(b"one")) == 0
    assert cluster.succeed(writer.append_many([b"two", b"three"])) == range(1, 3)
    assert writer.last_add_confirmed == 2
    assert writer.length == 11
    cluster.succeed(writer.close())
    metadata = cluster.metadata(writer.id)
    assert metadata.is_closed
    assert (metadata.last_entry, metadata.length) == (2, 11)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert [entry.data for entry in cluster.succeed(reader.read(0, 2))] == [b"one", b"two", b"three"]
    assert [entry.entry_id for entry in cluster.succeed(collect(reader.stream()))] == [0, 1, 2]
    assert (reader.last_entry_id, reader.length, reader.closed) == (2, 11, True)
    assert cluster.succeed(reader.read_last_confirmed()) == 2


@pytest.mark.parametrize("digest", list(DigestType))
@pytest.mark.parametrize("password", [b"", b"secret"])
def test_every_digest_writes_and_reads(digest, password):
    """Entries come back for each digest, with and without a password."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(digest=digest.name.lower(), password=password))
    cluster.succeed(writer.append_many([b"a", b"", b"ccc"]))
    reader = cluster.succeed(client.open_ledger(writer.id, password))
    assert [entry.data for entry in cluster.succeed(reader.read(0, 2))] == [b"a", b"", b"ccc"]
    assert cluster.metadata(writer.id).digest is digest


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 2, 1), (3, 2, 1), (3, 3, 3), (4, 3, 2), (5, 3, 2), (5, 5, 3)])
def test_every_shape_writes_and_reads(shape):
    """Each entry has as many copies as the write quorum, and all are read back."""
    cluster = FakeCluster(5)
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2]))
    wanted = [b"%d" % entry for entry in range(137)]
    for start in range(0, 137, 10):
        cluster.succeed(writer.append_many(wanted[start : start + 10]))
    cluster.spin(0.1)
    assert all(len(cluster.holders(writer.id, entry)) == shape[1] for entry in range(137))
    cluster.succeed(writer.close())
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert [entry.data for entry in cluster.succeed(reader.read(0, 136))] == wanted


def test_arguments_that_make_no_sense():
    """Wrong values and types are refused before anything is stored."""
    cluster = FakeCluster()
    client = cluster.client()
    for wrong in (
        {"ensemble_size": 2},
        {"ack_quorum": 0},
        {"digest": "SHA3"},
        {"write_flags": "FASTER"},
        {"ack_quorum": 4},
    ):
        assert isinstance(cluster.fails(client.create_ledger(**wrong)), ValueError), wrong
    assert isinstance(cluster.fails(client.create_ledger(password=None)), TypeError)
    assert isinstance(cluster.fails(client.create_ledger(ledger_id=-1)), IncorrectParameter)
    assert isinstance(cluster.fails(client.create_ledger(ledger_id=(1 << 63) - 1)), IncorrectParameter)
    assert isinstance(cluster.fails(client.open_ledger(-1)), IncorrectParameter)
    assert isinstance(cluster.fails(client.open_ledger(1, "text")), TypeError)
    for ledger in (5.5, "5", None):
        for wrong in (
            client.create_ledger(ledger_id=5.5),
            client.open_ledger(ledger),
            client.metadata(ledger),
            client.delete_ledger(ledger),
        ):
            assert isinstance(cluster.fails(wrong), TypeError)
    for wrong in ({"ensemble_size": 3.0}, {"write_quorum": "3"}, {"ack_quorum": 2.0}):
        assert isinstance(cluster.fails(client.create_ledger(**wrong)), TypeError), wrong
    assert stored.Ledgers(cluster.shared) == {}


@pytest.mark.parametrize("wrong", [-1, -(1 << 63), 1 << 63, 1 << 64, 1 << 200])
def test_an_id_that_no_frame_holds_is_refused_at_once_and_the_writer_goes_on(wrong):
    """Own ids beyond 63 bits fail alone, and the largest id is accepted."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(advanced=True))
    cluster.succeed(writer.append_at(0, b"a"))
    refused = cluster.outcome(writer.append_at(wrong, b"x"))
    assert isinstance(refused.error, IncorrectParameter)
    for other in (1.0, "1", None):
        with pytest.raises(TypeError):
            writer.append_at(other, b"x")
    assert isinstance(cluster.fails(writer.append(b"x")), IllegalOp), "the caller gives the ids"
    assert writer.last_add_pushed == 0
    assert cluster.succeed(writer.append_at(1, b"b")) == 1
    highest = cluster.outcome(writer.append_at((1 << 63) - 1, b"held by a frame, and never confirmed"))
    cluster.spin(0.1)
    assert not highest.done
    cluster.succeed(writer.close())
    assert isinstance(highest.error, LedgerClosed)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert [entry.data for entry in cluster.succeed(reader.read(0, 1))] == [b"a", b"b"]


def test_the_highest_id_of_a_batch_is_bounded_too(monkeypatch):
    """No ledger comes so far by appending; its machine refuses all the same, and is not poisoned."""
    cluster = FakeCluster()
    client = cluster.client()
    last = (1 << 63) - 3
    monkeypatch.setattr(writing, "AppendMachine", lambda *given: AppendMachine(*given[:-1], AppendMode(last=last)))
    writer = cluster.succeed(client.create_ledger())
    assert isinstance(cluster.fails(writer.append_many([b"a", b"b", b"c"])), IncorrectParameter)
    assert cluster.succeed(writer.append_many([b"a", b"b"])) == range((1 << 63) - 2, 1 << 63)
    assert isinstance(cluster.fails(writer.append(b"c")), IncorrectParameter)


def test_too_few_bookies_are_named_in_numbers():
    """The error says how many are needed and how many can be used."""
    cluster = FakeCluster(2)
    error = cluster.fails(cluster.client().create_ledger())
    assert isinstance(error, NotEnoughBookies)
    assert "3 bookies are needed; 2 of the 2 writable ones can be used" in str(error)


def test_bookies_that_failed_lately_are_chosen_only_when_needed():
    """Suspects are in an ensemble only if the others are too few."""
    cluster = FakeCluster(5)
    client = cluster.client()
    for name in ("b0", "b1"):
        client.choice.suspect(name)
    for _ in range(5):
        writer = cluster.succeed(client.create_ledger())
        assert set(writer.metadata.last_fragment.bookies) == {"b2", "b3", "b4"}
    assert cluster.succeed(client.create_ledger(ensemble_size=5)).metadata.ensemble_size == 5


def test_an_id_of_ones_own():
    """A ledger gets the id that the caller gives, and `LedgerExist` is raised if it is taken."""
    cluster = FakeCluster()
    client = cluster.client()
    assert cluster.succeed(client.create_ledger(ledger_id=77)).id == 77
    assert isinstance(cluster.fails(client.create_ledger(ledger_id=77)), LedgerExist)


def test_a_generated_id_that_is_taken_is_passed_over():
    """The next free id is used."""
    cluster = FakeCluster()
    client = cluster.client()
    cluster.succeed(client.create_ledger(ledger_id=0))
    assert cluster.succeed(client.create_ledger()).id != 0


def test_a_create_whose_answer_was_lost_is_recognised_by_its_token():
    """protocol-rules.md 2.1: on EXISTS the creator reads again; an equal token is its own success."""
    cluster = FakeCluster()
    lost = {"once": True}
    cluster.store_fault = lambda name, _given: (
        Fault(error=LedgerExist("the retry found it"), applied=True)
        if name == "create_ledger" and lost.pop("once", False)
        else None
    )
    writer = cluster.succeed(cluster.client().create_ledger(ledger_id=5))
    assert writer.id == 5
    assert cluster.succeed(writer.append(b"x")) == 0


def test_custom_metadata_and_figures_are_stored():
    """Metadata has the custom values, state, password, creation time and a token."""
    cluster = FakeCluster()
    client = cluster.client()
    cluster.spin(3)
    writer = cluster.succeed(client.create_ledger(custom_metadata={"app": b"demo"}, password=b"p"))
    metadata = cluster.succeed(client.metadata(writer.id))
    assert dict(metadata.custom) == {"app": b"demo"}
    assert (metadata.state, metadata.password, metadata.ctime_ms) == (LedgerState.OPEN, b"p", 3000)
    assert metadata.ctoken > 0


def test_listing_and_deleting():
    """Ids are listed in pages, a second delete succeeds, and a deleted ledger is not found."""
    cluster = FakeCluster()
    client = cluster.client()
    ids = [cluster.succeed(client.create_ledger()).id for _ in range(5)]
    assert cluster.succeed(client.ledger_ids()) == ids
    assert cluster.succeed(client.ledger_ids(ids[1], 2)) == ids[2:4]
    cluster.succeed(client.delete_ledger(ids[0]))
    cluster.succeed(client.delete_ledger(ids[0]))
    assert cluster.succeed(client.ledger_ids()) == ids[1:]
    for wrong in (client.metadata(ids[0]), client.open_ledger(ids[0]), client.open_ledger(ids[0], recover=False)):
        assert isinstance(cluster.fails(wrong), NoSuchLedger)


def test_passwords():
    """A wrong password is refused with and without recovery, the right one opens the ledger."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(password=b"right"))
    cluster.succeed(writer.append(b"x"))
    for recover in (True, False):
        assert isinstance(cluster.fails(client.open_ledger(writer.id, b"wrong", recover)), UnauthorizedAccess)
    cluster.succeed(client.open_ledger(writer.id, b"right"))


def test_an_administrators_recovery_needs_no_password():
    """`recover_ledger` closes a ledger whose password the caller does not have."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger(password=b"right"))
    cluster.succeed(writer.append(b"x"))
    assert cluster.succeed(client.recover_ledger(writer.id)).last_entry == 0
    assert cluster.succeed(client.recover_ledger(writer.id)).is_closed


def test_closing_the_client_ends_everything_under_way():
    """Appends, reads and later calls raise `ClientClosed`, and the open ledger stays open."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    done = cluster.succeed(client.create_ledger())
    cluster.succeed(done.append(b"x"))
    cluster.succeed(done.close())
    reader = cluster.succeed(client.open_ledger(done.id))
    cluster.judge = lambda _request: "hold"
    pending = cluster.outcome(writer.append(b"x"))
    reading = cluster.outcome(reader.read(0, 0))
    closing = [cluster.outcome(client.close()) for _ in range(2)]
    cluster.spin(0.1)
    assert [outcome.code for outcome in closing] == [0, 0]
    assert isinstance(pending.error, ClientClosed)
    assert isinstance(reading.error, ClientClosed)
    for later in (
        client.create_ledger(),
        client.open_ledger(0),
        client.metadata(0),
        client.ledger_ids(),
        client.delete_ledger(0),
    ):
        assert isinstance(cluster.fails(later), ClientClosed)
    assert cluster.metadata(writer.id).state is LedgerState.OPEN


def test_a_close_that_fails_says_so():
    """No caller waits for ever; a second close waits for nothing."""
    cluster = FakeCluster()
    client = cluster.client()
    client.store.close = lambda: fail(MetaStore("it did not end"))
    assert isinstance(cluster.fails(client.close()), MetaStore)
    assert cluster.succeed(client.close()) is None


def test_handles_that_ended_are_forgotten():
    """The client holds no reference to closed writers and readers."""
    cluster = FakeCluster()
    client = cluster.client()
    for _ in range(3):
        writer = cluster.succeed(client.create_ledger())
        cluster.succeed(writer.append(b"x"))
        cluster.succeed(writer.close())
        reader = cluster.succeed(client.open_ledger(writer.id))
        cluster.succeed(reader.close())
    assert client.handles == set()


def test_connect_finds_a_cluster_or_says_how_to_make_one():
    """Without a cluster the error names `quire metadata init`; an unknown scheme raises `ValueError`."""
    reactor = VirtualReactor()
    refused = []
    api.connect(reactor, "memory://api-test-empty").addErrback(lambda failure: refused.append(failure.value))
    assert isinstance(refused[0], MetaStore)
    assert "quire metadata init" in str(refused[0])
    wrong = []
    api.connect(reactor, "http://elsewhere").addErrback(lambda failure: wrong.append(failure.value))
    assert isinstance(wrong[0], ValueError)


def test_connect_with_options_that_no_client_can_have_closes_the_store(monkeypatch):
    """A policy that nobody installed is a `ValueError`, and the session with the store does not stay behind."""
    reactor = VirtualReactor()
    uri = "memory://api-test-options"
    stores: list[MemoryStore] = []

    def opened(*args, **kwargs):
        opening = open_store(*args, **kwargs)
        opening.addCallback(lambda store: stores.append(store) or store)
        return opening

    monkeypatch.setattr(api, "open_store", opened)
    open_store(reactor, uri).result.init_cluster()
    closed = []
    monkeypatch.setattr(MemoryStore, "close", lambda store: closed.append(store) or succeed(None))
    refused = []
    options = ClientOptions(placement="nobody's")
    api.connect(reactor, uri, options).addErrback(lambda failure: refused.append(failure.value))
    assert isinstance(refused[0], ValueError)
    assert "nobody's" in str(refused[0])
    assert closed == stores
    assert len(stores) == 1


def test_connect_and_create_on_the_real_pool():
    """No bookie is contacted at a create."""
    reactor = VirtualReactor()
    shared = MemoryCluster("real pool")
    store = MemoryStore(reactor, shared)
    store.init_cluster()
    from quire.metadata.store import ServiceInfo

    for number in range(3):
        store.register_bookie(f"b{number}", ServiceInfo.of("127.0.0.1", number + 1))
    client = api.Client(reactor, store)
    made: Deferred = client.create_ledger()
    assert made.result.id == 0
    client.close()
