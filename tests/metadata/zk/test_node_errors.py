"""Errors of znodes: what a caller may rely on."""

import pytest

from quire.metadata.zk.node_errors import BadVersion, NodeError, NodeExists, NoNode, NotEmpty, SessionOver
from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("kind", [BadVersion, NodeExists, NoNode, NotEmpty, SessionOver])
def test_an_operation_counts_as_tried_once_until_its_session_says_otherwise(kind: type[NodeError]) -> None:
    """
    A caller that does not look at the kind sees a failure of the metadata store; `retried` is set on one error only.
    """
    error = kind("/ledgers")
    assert isinstance(error, MetaStore)
    assert not error.retried
    error.retried = True
    assert not kind("/ledgers").retried
