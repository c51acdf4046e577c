"""
A session's operations beside a server that does not answer: their time, who cancels them, and what is watched then.
"""

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock

from quire.metadata.store import BookieList
from quire.metadata.zk.session import ZooKeeperSession
from quire.protocol.errors import MetaStore
from tests.metadata.made import BOOKIES, HERE, ledger
from tests.metadata.stories import Heard
from tests.reactor import run


class Reactor(Clock):
    def callFromThread(self, fn, *args):
        self.callLater(0, fn, *args)


def failed(deferred):
    errors = []
    deferred.addErrback(lambda failure: errors.append(failure.value))
    return errors


def test_an_operation_that_is_cancelled_says_so_and_one_whose_time_is_over_names_the_server():
    """
    A cancelled call does not fail with a server's fault, and nothing goes on for it: no timer, and no caller that waits
    for the connection.
    """
    reactor = Reactor()
    session = ZooKeeperSession(reactor, ["127.0.0.1:1"], "zk://nowhere", 5.0)
    given_up, late = session.get("/a"), session.get("/b")
    errors, others = failed(given_up), failed(late)
    given_up.cancel()
    assert [type(error) for error in errors] == [CancelledError]
    assert len(reactor.getDelayedCalls()) == 1
    reactor.advance(6.0)
    assert isinstance(others[0], MetaStore)
    assert "zk://nowhere did not answer within 5 s" in str(others[0])
    assert reactor.getDelayedCalls() == []


def test_watches_survive_lost_connections(lossy, zookeeper_place):
    """
    kazoo forgets its watches with the connection; what changed meanwhile is reported after the return, and later
    changes too.
    """
    proxy, store = lossy

    async def story():
        other = await zookeeper_place.ready()
        made = await other.create_ledger(1, ledger())
        ledgers, bookies, lost = Heard(), Heard(), Heard()
        store.on_session_lost(lost)
        store.watch_ledger(1, ledgers)
        store.watch_bookies(bookies)
        await ledgers.until(lambda seen: seen == made)
        await bookies.until(lambda seen: seen == BookieList({}, {}))
        for round_ in range(1, 4):
            proxy.refusing = True
            proxy.drop()
            made = await other.write_ledger(1, made.value.with_ensemble(round_, BOOKIES), made.version)
            await other.register_bookie(f"a:{round_}", HERE)
            proxy.refusing = False
            await ledgers.until(lambda seen, made=made: seen == made)
            await bookies.until(lambda seen, round_=round_: len(seen.writable) == round_)
        await other.delete_ledger(1)
        await ledgers.until(lambda seen: seen is None)
        await other.unregister_bookie("a:1")
        await bookies.until(lambda seen: len(seen.writable) == 2)
        assert lost.all == []

    run(story)
