"""An operation beside servers that lose answers, hang, or forget who we are: what is tried again, and what is said."""

from functools import partial
from random import Random

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from quire.conf.parts.etcd import EtcdOptions
from quire.metadata.etcd import tree as tree_module
from quire.metadata.etcd.client import CallFailed
from quire.metadata.etcd.messages import CLASSES
from quire.metadata.store import StoreClosed
from quire.metadata.tree import BadVersion, NodeExists, NoNode
from quire.protocol.errors import MetaStore, MetaStoreRefused
from quire.security.etcd import EtcdSecurity
from quire.security.jaas import Account
from tests.metadata.etcd.played import PlayedKeys
from tests.metadata.zk.test_session import failed

# SPDX-License-Identifier: Apache-2.0

UNAVAILABLE = CallFailed("UNAVAILABLE", "transport is closing")
UNTRUSTED = CallFailed("UNAVAILABLE", "Ssl handshake failed: CERTIFICATE_VERIFY_FAILED")


class Reactor(Clock):
    def callFromThread(self, fn, *args):
        self.callLater(0, fn, *args)


class PlayedClient:
    """
    Calls of one etcd.  `faults`: for each call to come, None or how its answer is lost: an error in place of the
    effect, one after it (`done`), one and the effect once it is to `land`, never an answer (`hangs`), or the answer to
    come.
    """

    def __init__(self, _reactor, hosts, _tls) -> None:
        self.hosts = list(hosts)
        self.at = 0
        self.token = ""
        self.keys = PlayedKeys()
        self.faults = []
        self.calls = []
        self.late = []
        self.leases = []
        self.ended = False

    @property
    def server(self):
        return self.hosts[self.at]

    def move(self, lost):
        self.at = (lost + 1) % len(self.hosts)
        return len(self.hosts) > 1

    def call(self, name, request, seconds):
        self.calls.append((name, self.server, seconds, self.token))
        fault = self.faults.pop(0) if self.faults else None
        if fault == "hangs":
            return Deferred()
        if isinstance(fault, Deferred):
            return fault
        if isinstance(fault, CallFailed):
            return fail(fault)
        if fault == "late":
            self.late.append(request)
            return fail(UNAVAILABLE)
        if name == "Authenticate":
            return succeed(CLASSES["AuthenticateResponse"](token=f"of {request.name}"))
        answer = self.keys.transact(request) if name == "Txn" else getattr(self, name)(request)
        return fail(UNAVAILABLE) if fault == "done" else succeed(answer)

    def land(self):
        """What is late comes to a server, of which nobody waits for an answer."""
        late, self.late = self.late, []
        for request in late:
            self.keys.transact(request)

    def LeaseGrant(self, request):
        self.leases.append(len(self.leases) + 1)
        return CLASSES["LeaseGrantResponse"](ID=self.leases[-1], TTL=request.TTL)

    def LeaseRevoke(self, request):
        self.leases.remove(request.ID)
        self.keys.expire(request.ID)
        return CLASSES["LeaseRevokeResponse"]()

    def stream(self, heard, ended):
        """One that is slow: nothing has come yet."""
        return self

    def send(self, request):
        pass

    def close(self):
        self.ended = True


class World:
    def __init__(self, monkeypatch, hosts=("a:1",), login=None) -> None:
        monkeypatch.setattr(tree_module, "Client", self.client)
        self.reactor = Reactor()
        security = EtcdSecurity(EtcdOptions())
        security.login = login
        self.tree = tree_module.EtcdTree(self.reactor, hosts, "etcd://a:1/x", 6.0, security, Random(1))

    def client(self, *args):
        self.played = PlayedClient(*args)
        return self.played

    def result(self, deferred):
        """What comes within the time-out."""
        results, errors = [], failed(deferred)
        deferred.addCallback(results.append)
        for _ in range(700):
            if results or errors:
                break
            self.reactor.advance(0.01)
        return results[0] if results and not errors else errors[0]


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch)


def test_a_lost_answer_is_asked_for_again_and_said(world):
    """A change that was done before its answer was lost is refused the second time, and the error says so."""
    world.played.faults = ["done"]
    error = world.result(world.tree.create("/a"))
    assert (type(error), error.retried) == (NodeExists, True)
    error = world.result(world.tree.create("/a"))
    assert (type(error), error.retried) == (NodeExists, False)
    world.played.faults = ["done"]
    error = world.result(world.tree.set("/a", b"x", 0))
    assert (type(error), error.retried) == (BadVersion, True)
    world.played.faults = [UNAVAILABLE]
    assert world.result(world.tree.set("/a", b"y", 1)) == 2
    world.played.faults = ["done"]
    assert world.result(world.tree.get("/a"))[0] == b"y"


def test_what_was_sent_before_an_answer_does_not_come_behind_it(world):
    """A node that was made by a second try and removed is not made again by the first, nor the other way round."""
    world.played.faults = ["late"]
    world.result(world.tree.create("/a"))
    world.result(world.tree.delete("/a"))
    world.played.land()
    assert world.result(world.tree.exists("/a")) is None
    world.result(world.tree.create("/a"))
    world.played.faults = ["late", "done"]
    assert world.result(world.tree.delete("/a")).retried
    world.result(world.tree.create("/a", b"again"))
    world.played.land()
    assert world.result(world.tree.get("/a"))[0] == b"again"
    world.played.faults = ["late"]
    error = world.result(world.tree.create("/a"))
    assert (type(error), error.retried) == (NodeExists, True)
    world.result(world.tree.delete("/a"))
    world.played.land()
    assert world.result(world.tree.exists("/a")) is None


def test_clients_share_a_guard(monkeypatch):
    """What one of them sends after another has put it is sent once more, and later ones are not."""
    world, other = World(monkeypatch), World(monkeypatch)
    other.played.keys = world.played.keys
    world.played.faults = [UNAVAILABLE]
    assert world.result(world.tree.create("/a")) == "/a"
    assert other.result(other.tree.create("/b")) == "/b"
    assert len(other.played.calls) == 2
    assert other.result(other.tree.create("/c")) == "/c"
    assert len(other.played.calls) == 3


def test_children_that_are_listed_before_their_watches_were_heard(world):
    """A bookie that left and joined is not taken for the one that was read, though the list is newer."""
    heard = []
    for each in ("/a", "/a/left", "/a/stays"):
        world.result(world.tree.create(each))
    for each in ("left", "stays"):
        world.result(world.tree.get(f"/a/{each}", partial(heard.append, each)))
    world.result(world.tree.delete("/a/left", 0))
    world.result(world.tree.create("/a/left"))
    listing = world.tree.listing("/a")
    listing.addCallback(lambda found: heard.append(sorted(found[0])))
    world.result(listing)
    assert heard == ["left", ["left", "stays"]]


def test_a_lost_look_leaves_no_doubt(world):
    """The first transaction of steps that need a look before changes nothing."""
    world.result(world.tree.create("/a"))
    world.played.faults = ["done"]
    error = world.result(world.tree.create("/b/n-", numbered=True))
    assert (type(error), error.retried) == (NoNode, False)


def test_another_server_is_asked(monkeypatch):
    """One that does not answer has a third of the time, and the next call goes to the next one at once."""
    world = World(monkeypatch, ("a:1", "b:2", "c:3"))
    world.played.faults = ["hangs"]
    asked = world.tree.create("/a")
    assert world.played.calls == [("Txn", "a:1", 2.0, "")]
    error = CallFailed("DEADLINE_EXCEEDED", "it is late")
    world.played.faults = [error]
    asked.cancel()
    failed(asked)
    assert world.result(world.tree.create("/a")) == "/a"
    assert [server for _, server, *_ in world.played.calls] == ["a:1", "a:1", "b:2"]


def test_it_ends_within_the_session_timeout(world):
    """Whether etcd says nothing or says no; what was asked before the close fails with that."""
    for fault in (["hangs"] * 9, [UNAVAILABLE] * 1000):
        world.played.faults = fault
        begun = world.reactor.seconds()
        error = world.result(world.tree.get("/a"))
        assert type(error) is MetaStore
        assert "etcd at etcd://a:1/x did not answer within 6 s" in str(error)
        assert world.reactor.seconds() - begun < 6.1
        assert world.reactor.getDelayedCalls() == []
    world.played.faults = ["hangs"]
    late = failed(world.tree.get("/a"))
    world.tree.close()
    assert isinstance(late[0], StoreClosed)
    assert isinstance(world.result(world.tree.get("/a")), StoreClosed)
    assert world.played.ended


def test_a_certificate_that_is_not_accepted_is_said_at_once(monkeypatch):
    """Once that is so of every server."""
    world = World(monkeypatch, ("a:1", "b:2"))
    world.played.faults = [UNTRUSTED, UNTRUSTED]
    error = world.result(world.tree.get("/a"))
    assert type(error) is MetaStoreRefused
    assert "etcdTlsTrustStore" in str(error)


def test_a_proof_of_the_password_is_given_again(monkeypatch):
    """Before the first call, and when etcd has forgotten it."""
    world = World(monkeypatch, login=Account("ledgers", "secret"))
    assert world.result(world.tree.create("/a")) == "/a"
    world.played.faults = [CallFailed("UNAUTHENTICATED", "etcdserver: invalid auth token")]
    assert world.result(world.tree.exists("/a")).version == 0
    assert [name for name, *_ in world.played.calls] == ["Authenticate", "Txn", "Txn", "Authenticate", "Txn"]
    assert world.played.calls[1][3] == "of ledgers"


def test_calls_that_a_forgotten_token_refuses_give_one_proof(monkeypatch):
    """The second one comes when the first has a new token already; and so does the end of the session."""
    world = World(monkeypatch, login=Account("ledgers", "secret"))
    refused = CallFailed("UNAUTHENTICATED", "etcdserver: invalid auth token")
    world.result(world.tree.create("/a", claim=True))
    late = [Deferred(), Deferred()]
    world.played.faults = list(late)
    asked = [world.tree.exists("/a"), world.tree.exists("/a")]
    world.played.calls.clear()
    late[0].errback(refused)
    world.result(asked[0])
    world.played.token = "of now"
    late[1].errback(refused)
    world.result(asked[1])
    assert [(name, token) for name, _, _, token in world.played.calls] == [
        ("Authenticate", ""),
        ("Txn", "of ledgers"),
        ("Txn", "of now"),
    ]
    world.played.faults = [refused]
    world.result(world.tree.close())
    assert [name for name, *_ in world.played.calls[3:]] == ["LeaseRevoke", "Authenticate", "LeaseRevoke"]
    assert world.played.leases == []


def test_a_session_is_ended_by_another_server(monkeypatch):
    """Where the one that was used is away."""
    world = World(monkeypatch, ("a:1", "b:2"))
    world.result(world.tree.create("/a", claim=True))
    world.played.faults = [UNAVAILABLE]
    world.result(world.tree.close())
    assert world.played.leases == []
    world = World(monkeypatch, ("a:1", "b:2"))
    world.result(world.tree.create("/a", claim=True))
    world.played.faults = [UNAVAILABLE] * 9
    world.result(world.tree.close())
    assert [server for name, server, *_ in world.played.calls if name == "LeaseRevoke"] == ["a:1", "b:2", "a:1"]


def test_a_lease_that_ends_before_its_session_has_begun(world):
    """As in a process that slept between: another one is asked for, once; then the error is the store's."""
    gone = CallFailed("NOT_FOUND", "etcdserver: requested lease not found")
    world.played.faults = [None, gone]
    assert world.result(world.tree.create("/a", claim=True)) == "/a"
    world.played.faults = [gone]
    assert world.result(world.tree.create("/b", claim=True)) == "/b"
    world.result(world.tree.close())


def test_a_session_that_cannot_begin(world):
    """Because each lease ends too early: that is the store's error."""
    world.played.faults = [None, CallFailed("NOT_FOUND", "etcdserver: requested lease not found")] * 2
    error = world.result(Deferred.fromCoroutine(world.tree.session_now()))
    assert type(error) is MetaStore
    assert "ended the session while it was made" in str(error)


def test_a_server_that_has_too_much_to_do_is_asked_again(world):
    """It has done nothing of what it refuses."""
    world.played.faults = [CallFailed("RESOURCE_EXHAUSTED", "etcdserver: too many requests")] * 3
    assert world.result(world.tree.create("/a")) == "/a"


def test_the_time_of_day_is_this_machines(world, monkeypatch):
    """Etcd has none, so clients whose clocks differ are told different times (docs/metadata.md)."""
    for now in (1000.5, 1600.5):
        monkeypatch.setattr(tree_module, "time_of_day", lambda now=now: now)
        assert world.result(world.tree.clock("/a")) == now * 1000
    assert world.played.calls == []
