"""The faces of logs have the same operations, with the same parameters; `tests/tools/test_faces.py` has the rest."""

import inspect

import pytest

from quire.log import aio, api, blocking
from quire.log.handles import aio as aio_handles
from quire.log.handles.partitions import aio as aio_partitions
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
    "PartitionedOwner": api.PartitionedOwner,
    "PartitionedReader": api.PartitionedReader,
    "PartitionedCursor": api.PartitionedCursor,
}
# What only the Twisted face has: an append there never waits, and what other layers call is public in Python.
TWISTED = {
    "Owner": {
        "ready",
        "append_runs",
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
        "append_copied",  # for mirrors, which hold two clusters
        "become_copy",
        "remember",
        "end_segment",
        "promote",
    },
    "Logs": {
        *("merging", "cluster", "create_copy", "context"),  # for who divides the work among processes; for mirrors
        "carried_cursor",  # for one that goes on in another cluster
    },
    "Cursor": {"give_back", "go_on_from", "standing"},  # for a face; for one that goes on in another cluster
    "LogReader": {"log", "spans"},  # for Spark's tasks
    "Replica": {"begin", "owner"},
    "Sink": {"clean"},
    "PartitionedOwner": {"begin"},
    "PartitionedReader": {"begin"},
    "PartitionedCursor": {"begin", "give_back"},
}
FACES = {"Owner": {"append_async"}}
ASYNC = {"__aiter__": "__iter__", "__aenter__": "__enter__", "__aexit__": "__exit__"}


def face(name):
    """The class of the asyncio face, from which the blocking one is made."""
    if name.startswith("Partitioned"):
        return getattr(aio_partitions, name)
    return getattr(aio if name == "Logs" else aio_handles, name)


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
def test_the_asyncio_face_has_what_the_twisted_one_has(name):
    """With the same parameters, save for what only one of them needs."""
    shown, core = operations(face(name)), operations(CORE[name])
    shown.pop("watch", None), core.pop("watch", None)  # a loop goes on, or a function is called: as in the client
    wanted = set(core) - TWISTED.get(name, set())
    assert wanted <= set(shown)
    more = {each for each in set(shown) - wanted if shown[each] != "property" and not each.startswith("__")}
    assert more == FACES.get(name, set())
    for each in wanted:
        assert shown[each] == core[each], each


def test_a_watch_of_the_blocking_face_is_that_of_the_twisted_one():
    """A function is called."""
    assert operations(blocking.Logs)["watch"] == operations(api.Logs)["watch"]


def test_what_opens_a_cluster_has_the_same_parameters():
    """But for the reactor, which the other two start."""
    given = [list(inspect.signature(face.connect).parameters) for face in (api, blocking, aio)]
    assert given[0][1:] == given[1] == given[2] == ["uri", "options", "client_options"]
