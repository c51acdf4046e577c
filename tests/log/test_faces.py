"""The three faces of logs have the same operations, with the same parameters."""

import inspect

import pytest

from quire.log import aio, api, blocking
from quire.log.handles import aio as aio_handles
from quire.log.handles import blocking as blocking_handles
from quire.log.machine import replica
from quire.log.publish import parts, sink
from quire.log.reader import reader

# SPDX-License-Identifier: Apache-2.0

CORE = {
    "Logs": api.Logs,
    "Owner": api.Owner,
    "LogReader": reader.LogReader,
    "Cursor": api.Cursor,
    "Sink": sink.Sink,
    "PartWriter": parts.PartWriter,
    "Replica": replica.Replica,
}
# What only the Twisted face has: an append there never waits, and what other layers call is public in Python.
TWISTED = {
    "Owner": {
        "ready",
        "start",
        "begin",
        "settle",
        "owner",
        "opened",
        "counts",
        "send",
        "released",
        "failed",
        "over",
        "tidy",
        "learnt",
        "forget_ledger",
        "lease",
        "me",
    },
    "LogReader": {"log"},  # for Spark's tasks
    "Replica": {"begin", "owner"},
    "Sink": {"clean"},
}
FACES = {"Owner": {"append_async"}}
ASYNC = {"__aiter__": "__iter__", "__aenter__": "__enter__", "__aexit__": "__exit__"}


def classes(name):
    """Of the blocking and of the asyncio face."""
    if name == "Logs":
        return blocking.Logs, aio.Logs
    return getattr(blocking_handles, name), getattr(aio_handles, name)


def operations(kind):
    """Name of each public operation and property -> the names, kinds and defaults of its parameters."""
    found = {}
    for name, value in inspect.getmembers(kind):
        name = ASYNC.get(name, name)
        if inspect.isfunction(value) and (not name.startswith("_") or name in ASYNC.values()):
            given = list(inspect.signature(value).parameters.values())
            found[name] = [(each.name, each.kind, each.default) for each in given[1:]]
        elif isinstance(value, property) and not name.startswith("_"):
            found[name] = "property"
    return found


@pytest.mark.parametrize("name", CORE)
def test_the_blocking_and_the_asyncio_face_are_the_same(name):
    """In names, parameters and defaults; `with` and `for` are `async with` and `async for`."""
    blocked, awaited = map(operations, classes(name))
    blocked.pop("watch", None), awaited.pop("watch", None)  # a function is called, or a loop goes on: as in the client
    assert blocked == awaited
    assert len(blocked) > 2


@pytest.mark.parametrize("name", CORE)
def test_both_have_what_the_twisted_face_has(name):
    """With the same parameters, save for what only one of them needs."""
    face, core = operations(classes(name)[0]), operations(CORE[name])
    wanted = set(core) - TWISTED.get(name, set())
    assert wanted <= set(face)
    more = {each for each in set(face) - wanted if face[each] != "property" and not each.startswith("__")}
    assert more == FACES.get(name, set())
    for each in wanted:
        assert face[each] == core[each], each


def test_what_opens_a_cluster_has_the_same_parameters():
    """But for the reactor, which the other two start."""
    given = [list(inspect.signature(face.connect).parameters) for face in (api, blocking, aio)]
    assert given[0][1:] == given[1] == given[2] == ["uri", "options", "client_options"]
