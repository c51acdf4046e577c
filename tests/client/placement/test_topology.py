"""Who tells where bookies are: files, scripts, the store; what is kept when nobody does; distances."""

import json
import pathlib
import stat

import pytest
from twisted.internet import reactor as real_reactor
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from quire.client.placement.topology import (
    DEFAULT_RACK,
    STALE_SECONDS,
    Topology,
    from_file,
    from_script,
    from_store,
    host_of,
    is_default,
    nearness,
    parse_places,
    region_of,
)
from quire.metadata.store import Endpoint, ServiceInfo
from tests.client.fakes.cluster import FakeCluster
from tests.reactor import run

PULSAR = {"default": {"10.0.0.1:3181": {"rack": "/eu/r1", "hostname": "one"}, "10.0.0.2:3181": {"rack": "eu/r2"}}, "other": {"b3:3181": {"rack": ""}}}


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
    assert parse_places(b"# ours\n10.0.0.1 /r1\n\nhost2:3181 /eu/r2 # near\n") == {"10.0.0.1": "/r1", "host2:3181": "/eu/r2"}
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


def test_places_are_asked_for_again_after_a_while_and_kept_when_nobody_tells(tmp_path):
    """A change is seen after the interval, and a missing file changes nothing."""
    path, clock = tmp_path / "places", Clock()
    path.write_text("b1 /r1\n")
    topology = Topology(clock.seconds, from_file(str(path)))
    learn(topology, "b1:1")
    path.write_text("b1 /r2\n")
    learn(topology, "b1:1")
    assert known(topology, "b1:1") == ["/r1"]
    clock.advance(STALE_SECONDS)
    learn(topology, "b1:1")
    assert known(topology, "b1:1") == ["/r2"]
    path.unlink()
    clock.advance(STALE_SECONDS)
    learn(topology, "b1:1")
    assert known(topology, "b1:1") == ["/r2"]


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


def test_the_store_tells_what_pulsar_keeps():
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


def test_a_source_that_fails_is_asked_later():
    """After an error the source is asked again at the next interval."""
    answers = [fail(OSError("away")), succeed({"a:1": "/r1"})]
    clock = Clock()
    topology = Topology(clock.seconds, lambda _hosts: answers.pop(0))
    learn(topology, "a:1")
    clock.advance(STALE_SECONDS)
    learn(topology, "a:1")
    assert known(topology, "a:1") == ["/r1"]


def test_regions_and_distances():
    """The region is the first part of a place of two; distance grows from same rack over same region to others."""
    assert (region_of("/eu/r1"), region_of("/r1")) == ("eu", "default-region")
    assert [nearness("/eu/r1", place) for place in ("/eu/r1", "/eu/r2", "/us/r1")] == [0, 1, 2]
    assert [nearness("/r1", place) for place in ("/r1", "/r2")] == [0, 2]
    assert nearness("", "/r1") == 0
    assert is_default(DEFAULT_RACK)


def test_a_bookie_s_host():
    """The host comes from the id, or from the registered endpoint of a bookie with a plain id."""
    assert host_of("10.0.0.1:3181", None) == "10.0.0.1"
    assert host_of("named", None) == "named"
    assert host_of("named", ServiceInfo.of("10.0.0.7", 3181)) == "10.0.0.7"
    assert host_of("named", ServiceInfo((Endpoint("httpserver", "x", 1, "http"),))) == "named"
