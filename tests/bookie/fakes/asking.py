"""Requests to paths behind a gate that lets everything in, as somebody who may ask sees them."""

from typing import Any

from twisted.internet.defer import Deferred

from quire.bookie.admin.gate import Gate, Keys
from quire.bookie.admin.http import Answer, Asked, Head

# SPDX-License-Identifier: Apache-2.0

OPEN = Keys(certificate=True)


def asking(
    gate: Gate, method: str, path: str, body: bytes = b"", token: str = "", **query: str
) -> Answer | Deferred[Answer]:
    """What a gate answers to a request by an address, with a token if one is given."""
    headers = {"host": "127.0.0.1:8000"} | ({"authorization": f"Bearer {token}"} if token else {})
    refused = gate.refusal(Head(method, path, query, headers, True))
    return gate.serve(Asked(method, path, body, query)) if refused is None else refused


def ask(parts: list[Any], method: str, path: str, body: bytes = b"") -> Answer:
    """What these paths answer at once, or in a turn of a clock that stands still."""
    found = asking(Gate([part.routes for part in parts], OPEN), method, path, body)
    if isinstance(found, Answer):
        return found
    given: list[Answer] = []
    found.addCallback(given.append)
    (answer,) = given
    return answer
