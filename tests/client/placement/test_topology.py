"""How long places are believed, what is kept when a source fails, and distances."""

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from quire.client.placement.place_sources import from_file
from quire.client.placement.topology import (
    DEFAULT_RACK,
    STALE_SECONDS,
    Topology,
    host_of,
    is_default,
    nearness,
    region_of,
)
from quire.metadata.store import Endpoint, ServiceInfo


def known(topology, *bookies):
    return [topology.place_of(bookie) for bookie in bookies]


def learn(topology, *bookies):
    outcome = []
    Deferred.fromCoroutine(topology.learn(list(bookies))).addBoth(outcome.append)
    assert outcome == [None]


def test_places_are_asked_for_again_after_a_while_and_kept_without_an_answer(tmp_path):
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
