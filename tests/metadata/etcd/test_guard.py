"""The guard of one client's changes, on keys in memory."""

from quire.metadata.etcd.guard import Guard
from quire.metadata.etcd.messages import PutRequest, RequestOp, TxnRequest
from tests.metadata.etcd.played import PlayedKeys

# SPDX-License-Identifier: Apache-2.0


def change(guard):
    request = TxnRequest(success=[RequestOp(request_put=PutRequest(key=b"a"))])
    guard.put_on(request)
    return request


def test_a_try_behind_a_lost_one_ends_that():
    """Also where it is refused itself; whoever compares the same key hears of it from the answer."""
    keys, guard, other = PlayedKeys(), Guard(3), Guard(3)
    lost = change(guard)
    answer = keys.transact(guard.ending(lost))
    assert answer.succeeded
    guard.learn(answer, ended=True)
    assert not keys.transact(lost).succeeded
    refused = keys.transact(change(other))
    assert not refused.succeeded
    ending = keys.transact(other.ending(change(other)))
    other.learn(ending, ended=True)
    assert not ending.succeeded
    for each in (other, guard):
        answer = keys.transact(change(each))
        each.learn(answer, ended=False)
    assert not answer.succeeded
    assert keys.transact(change(guard)).succeeded
    assert keys.transact(change(other)).succeeded
    assert sorted(keys.keys) == [b"a", b"quire\x033"]
