"""
The steps of a transaction, as kazoo's takes them.

Knows: which call a step is.  Does not know: when all are carried out, what comes of it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from quire.metadata.records import Create, Delete, Step, Write

# SPDX-License-Identifier: Apache-2.0


class Sequential(Create):
    """A step: a create whose path gets the next number of its parent."""


class Transaction(Protocol):
    """What is used of kazoo's."""

    def create(self, path: str, value: bytes, acl: None, ephemeral: bool, sequence: bool, /) -> object: ...

    def set_data(self, path: str, value: bytes, version: int, /) -> object: ...

    def delete(self, path: str, version: int, /) -> object: ...

    def check(self, path: str, version: int, /) -> object: ...

    def commit_async(self) -> Any: ...


class Client(Protocol):
    """What is used of kazoo's."""

    def transaction(self) -> Transaction: ...


def committed(steps: Sequence[Step], client: Client) -> Any:
    """Hands all of them to kazoo, in their order; its answer to come."""
    transaction = client.transaction()
    for step in steps:
        if isinstance(step, Create):
            transaction.create(step.path, step.data, None, step.claim, isinstance(step, Sequential))
        elif isinstance(step, Write):
            transaction.set_data(step.path, step.data, step.version)
        elif isinstance(step, Delete):
            transaction.delete(step.path, step.version)
        else:
            transaction.check(step.path, step.version)
    return transaction.commit_async()
