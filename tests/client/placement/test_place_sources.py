"""Where places come from: files, scripts, the metadata store; and what a source that fails leaves behind."""

import json
import pathlib
import stat

import pytest
from twisted.internet import reactor as real_reactor
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock

from quire.client.placement.topology import (
    DEFAULT_RACK,
    Topology,
    from_file,
    from_script,
    from_store,
    parse_places,
    source,
)
from quire.conf.client import ClientOptions
from tests.client.fakes.cluster import FakeCluster
from tests.reactor import run

PULSAR = {
    "default": {"10.0.0.1:3181": {"rack": "/eu/r1", "hostname": "one"}, "10.0.0.2:3181": {"rack": "eu/r2"}},
    "other": {"b3:3181": {"rack": ""}},
}


def known(topology, *bookies):
    return [topology.place_of(bookie) for bookie in bookies]


def learn(topology, *bookies):
    outcome = []
    Deferred.fromCoroutine(topology.learn(list(bookies))).addBoth(outcome.append)
    assert outcome == [None]


def test_pulsar_s_mapping_is_read():
    """Pulsar's JSON of groups gives the place of each bookie by id or host."""
    found = parse_places(json.dumps(PULSAR).encode())
    assert found == {"10.0.0.1:3181": "/eu/r1", "one": "/eu/r1", "10.0.0.2:3181": "/eu/r2"}


def test_lines_and_plain_json_are_read():
    """Both forms give host and place; comments and slashes at the end are ignored."""
    assert parse_places(b"# ours\n10.0.0.1 /r1\n\nhost2:3181 /eu/r2 # near\n") == {
        "10.0.0.1": "/r1",
        "host2:3181": "/eu/r2",
    }
    assert parse_places(b'{"10.0.0.1": "/r1/"}') == {"10.0.0.1": "/r1"}


@pytest.mark.parametrize("text", [b"10.0.0.1", b"10.0.0.1 /r1 /r2", b"10.0.0.1 /", b"{", b"\xff\xfe"])
def test_what_is_no_mapping_is_refused(text):
    """Malformed text raises `ValueError`."""
    with pytest.raises(ValueError):  # noqa: PT011  # its text is json's, the codec's or ours
        parse_places(text)


def test_a_file_names_bookies_by_id_or_host(tmp_path):
    """A bookie that the file does not name is in the default rack."""
    path = tmp_path / "places"
    path.write_text("10.0.0.1 /r1\n10.0.0.2:3181 /r2\n")
    topology = Topology(Clock().seconds, from_file(str(path)))
    learn(topology, "10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181")
    assert known(topology, "10.0.0.1:3181", "10.0.0.2:3181", "10.0.0.3:3181") == ["/r1", "/r2", DEFAULT_RACK]


def test_a_script_is_given_hosts_and_prints_places(tmp_path: pathlib.Path):
    """Output lines are matched to the hosts in order; longer lists take several runs."""
    script = tmp_path / "where"
    script.write_text('#!/bin/sh\nfor host in "$@"; do echo "/rack-$host"; done\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)

    async def ask():
        return await from_script(real_reactor, str(script), 2)({"a:1": "a", "b:1": "b", "c:1": "c"})

    assert run(ask) == {"a:1": "/rack-a", "b:1": "/rack-b", "c:1": "/rack-c"}


@pytest.mark.parametrize("body", ["echo /one", "echo trouble >&2; exit 1", None])
def test_a_script_that_fails_leaves_the_default_rack(tmp_path, body):
    """Too few lines, an exit status and a missing script leave bookies in the default rack."""
    script = tmp_path / "where"
    if body is not None:
        script.write_text(f"#!/bin/sh\n{body}\n")
        script.chmod(0o755)
    topology = Topology(Clock().seconds, from_script(real_reactor, str(script), 100))

    async def ask():
        await topology.learn(["a:1", "b:1"])

    run(ask)
    assert known(topology, "a:1", "b:1") == [DEFAULT_RACK, DEFAULT_RACK]


class Store:
    def __init__(self, answer):
        self.answer = answer

    def places(self):
        return self.answer


def test_the_store_has_what_pulsar_keeps():
    """The mapping that Pulsar keeps in the metadata store gives the places."""
    topology = Topology(Clock().seconds, from_store(Store(succeed(json.dumps(PULSAR).encode()))))
    learn(topology, "10.0.0.1:3181", "10.0.0.9:3181")
    assert known(topology, "10.0.0.1:3181", "10.0.0.9:3181") == ["/eu/r1", DEFAULT_RACK]


@pytest.mark.parametrize("answer", [None, b"{"])
def test_a_store_without_a_mapping_is_no_trouble(answer):
    """Without a mapping, or with a malformed one, bookies are in the default rack."""
    topology = Topology(Clock().seconds, from_store(Store(succeed(answer))))
    learn(topology, "a:1")
    assert known(topology, "a:1") == [DEFAULT_RACK]


def test_a_store_of_no_pulsar_has_none():
    """The store in memory has no mapping."""
    cluster = FakeCluster(1)
    assert cluster.succeed(cluster.store.places()) is None


def test_the_source_of_places_is_the_one_that_is_named(tmp_path):
    """A file, or the metadata store; none where none is named, or a script without its path."""
    path = tmp_path / "places"
    path.write_text("a /from-file\n")

    class Store:
        def places(self):
            return succeed(json.dumps({"a": "/from-store"}).encode())

    def asked(**options):
        named = source(MemoryReactorClock(), Store(), ClientOptions(**options))
        if named is None:
            return None
        found = []
        Deferred.fromCoroutine(ask(named)).addCallback(found.append)
        return found[0]

    async def ask(named):
        return await named({"a:1": "a"})

    assert asked(topology="file", topology_file=str(path)) == {"a:1": "/from-file"}
    assert asked(topology="metadata") == {"a:1": "/from-store"}
    assert asked() is None
    assert asked(topology="script") is None
