"""Watches of a tree: on one that a test plays, and in ZooKeeper over connections that are lost."""

from random import Random
from types import SimpleNamespace

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.metadata.formats import ledger_codec
from quire.metadata.ledgers.layout import Layout, LedgerPaths
from quire.metadata.ledgers.store import Ledgers
from quire.metadata.tree import NoNode
from quire.metadata.watches import REFUSED_PAUSE_S, RETRY_S
from quire.protocol.errors import MetaStore, MetaStoreRefused
from tests.metadata.made import ledger
from tests.metadata.zk.guarded import told

# SPDX-License-Identifier: Apache-2.0


class Session:
    """A session whose answers a test gives: `asked` is what is being read, with the watcher and who waits."""

    uri = "zk://played"

    def disarm(self, _watch):
        return False

    def __init__(self):
        self.asked = []
        self.reads = 0

    def get(self, path, watch):
        self.reads += 1
        self.asked.append((path, watch, Deferred()))
        return self.asked[-1][2]

    def answer(self, metadata=None, version=0, zxid=1, data=None):
        _path, watch, deferred = self.asked.pop(0)
        stat = SimpleNamespace(version=version, changed=zxid)
        deferred.callback((ledger_codec.encode(metadata) if data is None else data, stat))
        return watch

    def fail(self, error):
        self.asked.pop(0)[2].errback(error)


class Scene:
    def __init__(self):
        self.clock = Clock()
        self.session = Session()
        cluster = SimpleNamespace(layout=self.layout, deletions=None)
        self.ledgers = Ledgers(self.clock, self.session, "", cluster, Random(1))

    async def layout(self):
        return LedgerPaths("", Layout.FLAT), None

    def add(self, number=1):
        heard = []
        watch = self.ledgers.watch(number, heard.append)
        self.clock.advance(0)
        return heard, watch


def test_a_ledger_is_read_once_however_many_follow_it():
    """Each change is one reading, reported to all watches; a later watch, and it alone, gets what is there then."""
    scene = Scene()
    one, two = scene.add()[0], scene.add()[0]
    assert [path for path, _watch, _waiting in scene.session.asked] == ["/L0000000001"]
    opened = ledger()
    scene.session.answer(opened)
    watch = scene.session.answer(opened)
    assert scene.session.asked == []
    assert one == two == [(opened, 0)]
    three = scene.add()[0]
    scene.session.answer(opened)
    assert (len(one), three) == (1, [(opened, 0)])
    before = scene.session.reads
    watch()
    changed = opened.recovering()
    scene.session.answer(changed, 1, 2)
    assert scene.session.reads == before + 1
    assert one == two == three == [(opened, 0), (changed, 1)]


def test_an_event_that_overtakes_its_answer_is_read_again():
    """What was read then may be older than the event; the newest is reported, and an older one never after it."""
    scene = Scene()
    heard, _watch = scene.add()
    opened = ledger()
    scene.session.asked[0][1]()
    scene.session.answer(opened, 0, 5)
    assert len(scene.session.asked) == 1
    scene.session.answer(opened.recovering(), 1, 6)
    assert [version for _value, version in heard] == [0, 1]
    again, _watch = scene.add()
    scene.session.answer(opened, 0, 5)
    assert [version for _value, version in heard] == [0, 1]
    assert [version for _value, version in again] == [0]


def test_a_standing_watcher_is_used_again():
    """kazoo can't drop one, so the next watch of the ledger uses the same; unused it does nothing."""
    scene = Scene()
    heard, watch = scene.add()
    first = scene.session.answer(ledger())
    watch.cancel()
    _heard, watch = scene.add()
    assert scene.session.answer(ledger()) == first
    watch.cancel()
    reads = scene.session.reads
    first()
    assert scene.session.reads == reads, "nothing follows it"
    assert len(heard) == 1
    scene.add()
    assert scene.session.answer(ledger()) != first, "what has fired and is not followed is forgotten"


def test_a_watch_that_is_cancelled_while_it_is_read_for_hears_nothing():
    """Nor does one of a handle that was closed."""
    scene = Scene()
    heard, watch = scene.add()
    watch.cancel()
    scene.session.answer(ledger())
    later, _watch = scene.add()
    scene.ledgers.end()
    scene.session.answer(ledger())
    assert heard == later == []
    scene.add()
    assert scene.session.asked == []


def test_a_ledger_that_is_gone_ends_its_watches():
    """All its watches get None, once; a later one gets it too."""
    scene = Scene()
    (one, first), (two, _second) = scene.add(), scene.add()
    scene.session.fail(NoNode("gone"))
    assert one == two == [None]
    assert first.cancelled
    assert scene.session.asked == []
    three, _watch = scene.add()
    scene.session.fail(NoNode("gone"))
    assert (one, three) == ([None], [None])


def test_a_connection_that_is_away_is_waited_for():
    """The ledger is read again after a moment, until that succeeds or the handle is closed."""
    scene = Scene()
    heard, _watch = scene.add()
    for _ in range(3):
        scene.session.fail(MetaStore("away"))
        assert scene.session.asked == []
        scene.clock.advance(RETRY_S)
    scene.session.answer(ledger())
    assert heard == [(ledger(), 0)]
    scene.add()
    scene.ledgers.end()
    scene.session.fail(MetaStore("away"))
    assert scene.clock.getDelayedCalls() == []


def test_an_error_that_nobody_foresaw_ends_no_watch():
    """The log says so, and the ledger is read again after a moment."""
    scene = Scene()
    with told() as lines:
        heard, _ = scene.add()
        scene.session.fail(ZeroDivisionError("odd"))
        scene.clock.advance(RETRY_S)
        scene.session.answer(ledger())
    assert heard == [(ledger(), 0)]
    assert "ZeroDivisionError('odd')" in lines[0]


def test_what_access_lists_forbid_is_asked_for_slowly():
    """The log says so once, for each time that it begins to be so; the watch goes on once it may be read."""
    scene = Scene()
    with told() as lines:
        heard, _ = scene.add()
        for round_ in range(1, 4):
            scene.session.fail(MetaStoreRefused("not you"))
            scene.clock.advance(REFUSED_PAUSE_S - 0.1)
            assert scene.session.reads == round_
            scene.clock.advance(0.1)
        assert len([line for line in lines if "not you" in line]) == 1
        scene.session.answer(ledger())()
        assert heard == [(ledger(), 0)]
        scene.session.fail(MetaStoreRefused("not you"))
        assert len([line for line in lines if "not you" in line]) == 2


def test_a_ledger_that_can_not_be_read_is_not_reported():
    """Its next change is looked at again; other ledgers are followed as ever."""
    scene = Scene()
    heard, _watch = scene.add()
    other, _watch = scene.add(2)
    watch = scene.session.answer(data=b"junk")
    scene.session.answer(ledger())
    assert (heard, other) == ([], [(ledger(), 0)])
    watch()
    scene.session.answer(ledger(), 1, 2)
    assert heard == [(ledger(), 1)]
