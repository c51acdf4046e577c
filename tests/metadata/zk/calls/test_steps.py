"""Steps as calls of kazoo's transaction."""

from unittest.mock import Mock, call

from quire.metadata.records import Check, Create, Delete, Write
from quire.metadata.zk.calls.steps import Sequential, committed

# SPDX-License-Identifier: Apache-2.0


def test_each_step_is_one_call() -> None:
    """In their order, with versions; a claim is ephemeral, and a sequential one is numbered."""
    client = Mock()
    steps = [Create("/a", b"x", claim=True), Sequential("/b"), Write("/c", b"y", 3), Delete("/d", -1), Check("/e")]
    assert committed(steps, client) is client.transaction.return_value.commit_async.return_value
    assert client.transaction.return_value.method_calls == [
        call.create("/a", b"x", None, True, False),
        call.create("/b", b"", None, False, True),
        call.set_data("/c", b"y", 3),
        call.delete("/d", -1),
        call.check("/e", -1),
        call.commit_async(),
    ]
