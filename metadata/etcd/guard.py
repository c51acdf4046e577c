"""
The end of tries: a transaction whose answer was lost is sent again, and then never done a second time, later.

Knows: a key that each change compares, and that a try behind a lost one puts, whether it is carried out or not: what
was sent before finds another revision of it.  Clients share a few such keys, so that none is left of each; one that
finds its key put by another reads, and sends again.
Does not know: what a transaction does, why an answer was lost.

Safety: once a later try was answered, no earlier one takes effect any more, however long it is on its way (a server
that stood still may send it on when it goes on): a lock that was given back since does not come again, and one that
was taken again does not go.
"""

from typing import Any

from quire.metadata.etcd.messages import EQUAL, MOD, Compare, PutRequest, RangeRequest, RequestOp, TxnRequest
from quire.metadata.etcd.nodes import GUARD, PREFIX

# SPDX-License-Identifier: Apache-2.0

KEYS = 64


class Guard:
    """The guard of one client, with the key of that number."""

    def __init__(self, number: int) -> None:
        self._key = PREFIX + GUARD + b"%x" % (number)
        self._last = 0  # at which revision the key was put last, as far as is known

    def put_on(self, request: Any) -> None:
        """Makes a transaction compare the key, and read it if anything does not hold."""
        request.compare.append(Compare(key=self._key, result=EQUAL, target=MOD, mod_revision=self._last))
        request.failure.append(RequestOp(request_range=RangeRequest(key=self._key)))

    def ending(self, request: Any) -> Any:
        """Makes of it the try that ends what was sent before."""
        made, put = TxnRequest(), RequestOp(request_put=PutRequest(key=self._key))
        made.CopyFrom(request)
        made.success.append(put)
        made.failure[-1].CopyFrom(put)
        return made

    def learn(self, response: Any, ended: bool) -> None:
        """Hears from an answer when the key was put; `ended`: by the very transaction."""
        if ended:
            self._last = response.header.revision
        elif not response.succeeded:  # an answer that is older than what is known costs another look, no more
            self._last = max((each.mod_revision for each in response.responses[-1].response_range.kvs), default=0)
