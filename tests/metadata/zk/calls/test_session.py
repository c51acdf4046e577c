"""
A session's operations beside a server that does not answer: their time, and who cancels them.
"""

from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock

from quire.metadata.zk.calls.session import ZooKeeperSession
from quire.protocol.errors import MetaStore


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
