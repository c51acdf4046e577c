"""
A session's operations beside a server that does not answer: their time, and who cancels them.  And what kazoo is given
to wait for its sockets.
"""

import socket

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock

from quire.metadata.zk.calls.session import Handler, ZooKeeperSession
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


def test_sockets_are_waited_for():
    """Those that are ready come back under what was asked; a peer's end makes one ready, a closed one fails."""
    handler = Handler()
    near, far = socket.socketpair()
    with near, far:
        assert handler.select([near], [], [], 0) == ([], [], [])
        assert handler.select([near], [far], [], 1) == ([], [far], [])
        far.send(b"x")
        assert handler.select([near, far], [], []) == ([near], [], [])
        near.recv(1)
        far.close()
        assert handler.select([near], [], [], 1)[0] == [near]
        with pytest.raises(ValueError, match="descriptor"):
            handler.select([far], [], [], 1)


def test_an_answer_is_told_where_it_comes():
    """No thread of kazoo's is between the one that reads the connection and the reactor."""
    handler, heard = Handler(), []
    handler.start()
    answer = handler.async_result()
    answer.rawlink(lambda result: heard.append(result.value))
    answer.set(7)
    assert heard == [7]
    handler.stop()
