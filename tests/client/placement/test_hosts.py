"""Copies on different machines: units hold strictly, addresses are a preference, loopback ones say nothing."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.client.core.quorum import Quorums
from quire.client.placement.greedy import Greedy
from quire.client.placement.hosts import Hosts, HostsApart, apart
from quire.client.placement.policy import Draw, Placement, Wish
from quire.metadata.store import HOST_PROPERTY, BookieList, ServiceInfo
from quire.protocol.errors import NotEnoughBookies
from tests.client.fakes.places import rack_aware

# SPDX-License-Identifier: Apache-2.0


def unit(name: str, address: str = "127.0.0.1", port: int = 1) -> ServiceInfo:
    return ServiceInfo.of(address, port, properties={HOST_PROPERTY: name})


def units(*counts: int) -> dict[str, ServiceInfo]:
    """Bookies of units a, b, …: a-0, a-1, …"""
    return {
        f"{name}-{number}": unit(name)
        for name, count in zip("abcdefghij", counts, strict=False)
        for number in range(count)
    }


def choosing(
    infos: Mapping[str, ServiceInfo], seed: int = 1, strict: bool = True, policy: Placement | None = None
) -> HostsApart:
    hosts = Hosts()
    hosts.learn(BookieList(infos, {}))
    draw = Random(seed)
    return HostsApart(policy or Greedy(draw), hosts, Draw(draw), strict)


def machines(ensemble: list[str], quorums: Quorums) -> list[list[str]]:
    """The machines of each write set, counted the slow way."""
    return [[ensemble[index].split("-")[0] for index in quorums.write_set(entry)] for entry in range(quorums.ensemble)]


shapes = st.integers(1, 7).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size)))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), shapes, st.integers(0, 1 << 30))
def test_no_write_set_has_two_copies_on_one_host(counts: list[int], shape: tuple[int, int], seed: int) -> None:
    """Whatever the units and the quorums; there is a choice with a host for each bookie, or hosts used evenly."""
    size, write = shape
    infos, quorums = units(*counts), Quorums(size, write, 1)
    try:
        ensemble = choosing(infos, seed).new_ensemble(sorted(infos), size, wish=Wish(write))
    except NotEnoughBookies:
        assert len(counts) < size
        times = size // write  # so often may a host be used; hosts enough that can be are all that it takes
        assert size % write or sum(count >= times for count in counts) < write
        return
    assert len(set(ensemble)) == size
    assert all(len(set(each)) == write for each in machines(ensemble, quorums))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=7), shapes, st.integers(0, 1 << 30), st.data())
def test_replacements_keep_copies_on_different_hosts(
    counts: list[int], shape: tuple[int, int], seed: int, data: st.DataObject
) -> None:
    """However many bookies of an ensemble are lost after one another, also all of one host."""
    size, write = shape
    infos, quorums = units(*counts), Quorums(size, write, 1)
    chosen = choosing(infos, seed)
    try:
        ensemble = chosen.new_ensemble(sorted(infos), size, wish=Wish(write))
    except NotEnoughBookies:
        return
    gone: list[str] = []
    for index in data.draw(st.lists(st.integers(0, size - 1), max_size=4)):
        gone.append(ensemble[index])
        left = sorted(set(infos) - set(gone))
        fits = [
            bookie
            for bookie in set(left) - set(ensemble)
            if all(
                len(set(each)) == write
                for each in machines([*ensemble[:index], bookie, *ensemble[index + 1 :]], quorums)
            )
        ]
        try:
            ensemble[index] = chosen.replacement(left, ensemble, gone, index=index, wish=Wish(write))
        except NotEnoughBookies:
            assert not fits
            return
        assert ensemble[index] in fits


def test_too_few_hosts_are_an_error_that_says_so() -> None:
    """With the numbers and the option; without the option's strictness there is an ensemble all the same."""
    infos = units(2, 2)
    with pytest.raises(NotEnoughBookies, match=r"2 on a, 2 on b; start .* enforceDifferentHosts=false"):
        choosing(infos).new_ensemble(sorted(infos), 3, wish=Wish(3))
    assert len(choosing(infos, strict=False).new_ensemble(sorted(infos), 3, wish=Wish(3))) == 3
    with pytest.raises(NotEnoughBookies, match=r"has a copy already \(a, b\).*enforceDifferentHosts=false"):
        choosing(infos).replacement(sorted(infos), ["a-0", "b-0", "c-0"], index=2, wish=Wish(3))
    assert choosing(infos, strict=False).replacement(sorted(infos), ["a-0", "b-0", "c-0"], index=2, wish=Wish(3))
    with pytest.raises(NotEnoughBookies, match="5 bookies are needed; 4 of the 4"):
        choosing(infos).new_ensemble(sorted(infos), 5, wish=Wish(1))


def test_a_striped_ensemble_uses_each_host_more_than_once() -> None:
    """Six bookies on three hosts serve an ensemble of six: each write set has one of each host."""
    infos = units(2, 2, 2)
    for seed in range(20):
        ensemble = choosing(infos, seed).new_ensemble(sorted(infos), 6, wish=Wish(3))
        assert sorted(ensemble) == sorted(infos)
        assert all(len(set(each)) == 3 for each in machines(ensemble, Quorums(6, 3, 2)))


def test_racks_are_kept_too() -> None:
    """The policy beneath is asked for machines, so what it enforces holds, also where hosts are used twice."""
    infos = units(2, 2, 2, 2)
    racks = {"a": "/r1", "b": "/r1", "c": "/r2", "d": "/r2"}
    for seed in range(20):
        policy = rack_aware({bookie: racks[bookie[0]] for bookie in infos}, seed, enforce_racks=True)
        for size in (3, 6, 7):
            ensemble = choosing(infos, seed, policy=policy).new_ensemble(sorted(infos), size, wish=Wish(3, 2))
            for each in machines(ensemble, Quorums(size, 3, 2)):
                assert len(set(each)) == 3
                assert len({racks[name] for name in each}) == 2


def test_one_address_is_a_preference() -> None:
    """Bookies that announce no host are put apart by address where that goes, and anywhere where it does not."""
    infos = {f"10.0.0.{host}:{port}": ServiceInfo.of(f"10.0.0.{host}", port) for host in (1, 2, 3) for port in (1, 2)}
    for seed in range(20):
        found = choosing(infos, seed).new_ensemble(sorted(infos), 3, wish=Wish(3))
        assert len({bookie.split(":")[0] for bookie in found}) == 3
        assert len(choosing(infos, seed).new_ensemble(sorted(infos), 4, wish=Wish(4))) == 4
        ensemble = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
        assert choosing(infos, seed).replacement(sorted(infos), ensemble, index=2, wish=Wish(3)) == "10.0.0.3:2"
        left = [bookie for bookie in sorted(infos) if not bookie.startswith("10.0.0.3")]
        assert choosing(infos, seed).replacement(left, ensemble, index=2, wish=Wish(3)) in left


def test_loopback_bookies_are_as_they_were() -> None:
    """A cluster on one machine chooses as if this rule were not there, draw for draw."""
    infos = {f"127.0.0.1:{port}": ServiceInfo.of("127.0.0.1", port) for port in range(1, 6)}
    for seed in range(20):
        found = choosing(infos, seed).new_ensemble(sorted(infos), 3, wish=Wish(3))
        assert found == Greedy(Random(seed)).new_ensemble(sorted(infos), 3)


def test_which_unit_a_bookie_is_in() -> None:
    """What it announces; else its address's only unit; of one that is away, also what its id or its past says."""
    hosts = Hosts()
    listed = {"m1-0": unit("m1", "10.0.0.1"), "10.0.0.2:1": unit("m2", "10.0.0.2"), "q": unit("m2", "10.0.0.2")}
    java = {"10.0.0.2:9": ServiceInfo.of("10.0.0.2", 9), "m1-7": ServiceInfo.of("10.0.0.9", 7)}
    hosts.learn(BookieList({**listed, **java}, {}))
    for bookie, expected in {
        "q": ("unit", "m2"),
        "10.0.0.2:9": ("unit", "m2"),  # of another kind, on the same machine
        "10.0.0.2:5": ("unit", "m2"),  # away
        "m1-3": ("unit", "m1"),  # away
        "m1-7": ("bookie", "m1-7"),  # there, and announces none
        "m3-0": ("bookie", "m3-0"),
        "m1-x": ("bookie", "m1-x"),
    }.items():
        assert hosts.unit_of(bookie) == expected
    assert hosts.host_of("10.0.0.7:1") == hosts.host_of("10.0.0.7:2") == ("address", "10.0.0.7")
    hosts.learn(BookieList({}, {"m1-0": ServiceInfo.of("10.0.0.1", 1)}))
    assert hosts.unit_of("m1-0") == ("bookie", "m1-0")
    assert hosts.unit_of("q") == ("unit", "m2")


def test_an_address_of_two_units_says_nothing() -> None:
    """As behind a gateway that both are reached by."""
    hosts = Hosts()
    hosts.learn(BookieList({"a-0": unit("a", "10.0.0.1"), "b-0": unit("b", "10.0.0.1")}, {}))
    assert hosts.unit_of("10.0.0.1:5") == ("bookie", "10.0.0.1:5")


def test_apart_looks_at_write_sets_only() -> None:
    """Two bookies of one machine may be as far from each other as the write quorum is wide."""
    assert apart(["a1", "b1", "a2", "b2"], 2, lambda bookie: ("unit", bookie[0]))
    assert not apart(["a1", "b1", "c1", "a2"], 2, lambda bookie: ("unit", bookie[0]))
    assert not apart(["a1", "a2"], 2, lambda bookie: ("unit", bookie[0]))


def test_a_machine_counts_as_much_as_its_bookies_do() -> None:
    """Six bookies on one machine and one on each of three: the three are not in every second ledger."""
    infos = units(6, 1, 1, 1)
    chosen = choosing(infos)
    ledgers = 3000
    taken = [chosen.new_ensemble(sorted(infos), 2, wish=Wish(2)) for _ in range(ledgers)]
    assert sum("b-0" in ensemble for ensemble in taken) / ledgers < 0.42
