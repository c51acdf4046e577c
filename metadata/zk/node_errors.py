"""
Why ZooKeeper refused an operation on a znode, as errors of ours.

Knows: nothing of kazoo; `session` raises these in place of kazoo's own.
"""

from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0


class NodeError(MetaStore):
    """
    What a znode's state makes of an operation.  `retried`: an earlier try may have been done, its answer was lost;
    `step`: which step of a transaction it was.
    """

    retried = False
    step = 0


class NoNode(NodeError):
    """The znode, or the parent of the one to be made, does not exist."""


class NodeExists(NodeError):
    """The znode exists already."""


class BadVersion(NodeError):
    """The znode has another version."""


class NotEmpty(NodeError):
    """The znode has children."""


class SessionOver(NodeError):
    """The session that a call was bound to has ended, and its ephemeral znodes with it."""
