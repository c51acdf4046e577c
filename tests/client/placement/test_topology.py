"""How long places are believed, what is kept when a source fails, and distances."""

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.task import Clock

from quire.client.placement.topology import (
    DEFAULT_RACK,
    STALE_SECONDS,
    Topology,
    from_file,
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


def looked_up_later():
    """A topology, and what its source was asked for, each with its answer to come."""
    asked, clock = [], Clock()

    def source(hosts):
        asked.append((sorted(hosts), Deferred()))
        return asked[-1][1]

    return Topology(clock.seconds, source), asked, clock


def learning(topology, *bookies):
    outcome = Deferred.fromCoroutine(topology.learn(list(bookies)))
    return outcome.addErrback(lambda failure: failure.trap(CancelledError))


def test_who_comes_while_places_are_looked_up_waits_for_them():
    """Two ledgers that are made at once are placed by the same places; only what is missing is asked for."""
    topology, asked, _clock = looked_up_later()
    first, same, more = (learning(topology, *bookies) for bookies in (["a:1"], ["a:1"], ["a:1", "b:1"]))
    assert [hosts for hosts, _answer in asked] == [["a:1"]]
    assert not same.called
    asked[0][1].callback({"a:1": "/r1"})
    assert first.called
    assert same.called
    assert not more.called
    assert [hosts for hosts, _answer in asked] == [["a:1"], ["b:1"]]
    asked[1][1].callback({"b:1": "/r2"})
    assert more.called
    assert known(topology, "a:1", "b:1") == ["/r1", "/r2"]


def test_who_waited_for_a_look_up_that_was_cancelled_asks_itself():
    """The answer is not lost with the one who asked first."""
    topology, asked, _clock = looked_up_later()
    first, second = learning(topology, "a:1"), learning(topology, "a:1")
    first.cancel()
    asked[1][1].callback({"a:1": "/r1"})
    assert second.called
    assert known(topology, "a:1") == ["/r1"]


def test_old_places_serve_while_they_are_looked_up_again():
    """A slow source delays the one who asks it, and nobody else."""
    topology, asked, clock = looked_up_later()
    learning(topology, "a:1")
    asked[0][1].callback({"a:1": "/r1"})
    clock.advance(STALE_SECONDS)
    first, second = learning(topology, "a:1"), learning(topology, "a:1")
    assert not first.called
    assert second.called
    assert len(asked) == 2


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
