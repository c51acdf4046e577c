"""
Copies of an entry on different machines (docs/placement.md, "Bookies of one machine").

Knows: which bookies share a machine: those that announce the same host (a unit), and those with the same address; and
how an ensemble is made of which no write set has two bookies of one machine.
Does not know: racks, regions and zones; the policy that it asks does.

A unit holds strictly, unless its user says otherwise; an address is only a preference, for several machines may be
known by one.  A loopback address says nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations

from quire.client.core.quorum import near
from quire.client.placement.policy import Draw, Placement, Wish, kept
from quire.client.placement.topology import host_of
from quire.metadata.store import HOST_PROPERTY, BookieList, ServiceInfo
from quire.protocol.errors import NotEnoughBookies

# SPDX-License-Identifier: Apache-2.0

LOOPBACK = ("127.", "::1", "localhost")
TRIES = 40  # of a policy's own ensembles, before there is none

Host = tuple[str, str]  # what kind of name it is, and the name
HostOf = Callable[[str], Host]
Machines = Mapping[Host, list[str]]  # bookies that can be used, sorted


class Hosts:
    """Machines as bookies announced them, also those that are away now."""

    def __init__(self) -> None:
        self._listed: BookieList | None = None
        self._units: dict[str, str] = {}
        self._addresses: dict[str, str] = {}
        self._units_at: dict[str, set[str]] = {}
        self._hosts: dict[str, Host] = {}  # of bookies that were asked about since

    def learn(self, bookies: BookieList) -> None:
        if bookies is self._listed:
            return
        self._listed = bookies
        self._hosts.clear()
        for bookie, info in (*bookies.read_only.items(), *bookies.writable.items()):
            self._note(bookie, info)
        self._units_at = {}
        for bookie, unit in self._units.items():
            self._units_at.setdefault(self._address_of(bookie), set()).add(unit)

    def _note(self, bookie: str, info: ServiceInfo) -> None:
        self._addresses[bookie] = host_of(bookie, info)
        unit = info.properties.get(HOST_PROPERTY)
        if unit:
            self._units[bookie] = unit
        else:
            self._units.pop(bookie, None)

    def unit_of(self, bookie: str) -> Host:
        """
        The unit that a bookie is in; itself where it is in none.  One that does not say so is in that of its address,
        if there is only one; one that was never seen also in the unit whose name its id begins with.
        """
        unit = self._units.get(bookie)
        if unit is None:
            at_address = self._units_at.get(self._address_of(bookie), set())
            if len(at_address) == 1 and not self._address_of(bookie).startswith(LOOPBACK):
                (unit,) = at_address
        if unit is None and bookie not in self._addresses:
            name, _, number = bookie.rpartition("-")
            unit = name if number.isdecimal() and name in self._units.values() else None
        return ("bookie", bookie) if unit is None else ("unit", unit)

    def host_of(self, bookie: str) -> Host:
        """The unit of a bookie; without one the address that it shares with others, unless that is a loopback one."""
        found = self._hosts.get(bookie)
        if found is None:
            unit, address = self.unit_of(bookie), self._address_of(bookie)
            found = unit if unit[0] == "unit" or address.startswith(LOOPBACK) else ("address", address)
            if bookie in self._addresses:  # of others there may be any number
                self._hosts[bookie] = found
        return found

    def _address_of(self, bookie: str) -> str:
        return self._addresses.get(bookie) or host_of(bookie, None)


def apart(ensemble: Sequence[str], write: int, of: HostOf) -> bool:
    """True if no write set has two bookies of one machine."""
    return not any(
        near(low, high, len(ensemble), write) and of(ensemble[low]) == of(ensemble[high])
        for low, high in combinations(range(len(ensemble)), 2)
    )


def by_machine(bookies: Sequence[str], of: HostOf) -> Machines:
    machines: dict[Host, list[str]] = {}
    for bookie in bookies:
        machines.setdefault(of(bookie), []).append(bookie)
    return machines


class HostsApart:
    """A policy that asks another one, of bookies on different machines.  `strict`: rather fail than less."""

    def __init__(self, policy: Placement, hosts: Hosts, draw: Draw, strict: bool = True) -> None:
        self._policy = policy
        self._hosts = hosts
        self._draw = draw
        self._strict = strict

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: Wish = Wish()
    ) -> list[str]:
        found = self._policy.new_ensemble(available, size, exclude, wish=wish)  # says itself what else it lacks
        for of in (self._hosts.host_of, self._hosts.unit_of):
            # By bookies first, so that a machine counts as much as its bookies do; by machines where that finds none.
            for _ in range(TRIES):
                if apart(found, wish.write, of):
                    return found
                found = self._policy.new_ensemble(available, size, exclude, wish=wish)
            usable = sorted(set(available) - set(exclude))
            striped = self._striped(by_machine(usable, of), size, wish)
            if striped is not None:
                return striped
        if not self._strict:
            return found
        units = by_machine(sorted(set(available) - set(exclude)), self._hosts.unit_of)
        seen = ", ".join(f"{len(bookies)} on {name}" for (_kind, name), bookies in sorted(units.items()))
        raise NotEnoughBookies(
            f"{size} bookies are needed, those of each write set of {wish.write} on different hosts; there are "
            f"{seen}; start bookies on other hosts, or set enforceDifferentHosts=false"
        )

    def _striped(self, machines: Machines, size: int, wish: Wish) -> list[str] | None:
        """The policy's choice among one bookie of each machine; with fewer machines the same ones again and again."""
        times = 1 if len(machines) >= size else size // wish.write
        columns = -(-size // times)  # each block of the ensemble is on so many machines, the last ones on one less
        able = [bookies for bookies in machines.values() if len(bookies) >= times]
        if len(able) < columns or columns > max(size // times, wish.write + 1):
            return None
        first = {self._draw.one(bookies): bookies for bookies in able}
        with suppress(NotEnoughBookies, ValueError):  # for another reason than machines, perhaps
            row = self._policy.new_ensemble(sorted(first), columns, (), wish=wish)
            stacks = [
                [one, *(bookie for bookie in self._draw.some(first[one], len(first[one])) if bookie != one)]
                for one in row
            ]
            whole = size - times * (columns - 1)  # blocks that have all columns
            return [stack[block] for block in range(times) for stack in (stacks if block < whole else stacks[:-1])]
        return None

    def replacement(
        self,
        available: Sequence[str],
        ensemble: Sequence[str],
        excluded: Sequence[str] = (),
        *,
        index: int,
        wish: Wish = Wish(),
    ) -> str:
        beside = [
            bookie for at, bookie in enumerate(ensemble) if at != index and near(at, index, len(ensemble), wish.write)
        ]
        for of in (self._hosts.host_of, self._hosts.unit_of):
            taken = set(map(of, beside))
            machines = kept(available, (self, of), partial(by_machine, of=of))
            unfit = [bookie for machine in taken for bookie in machines.get(machine, ())]
            with suppress(NotEnoughBookies):
                return self._policy.replacement(available, ensemble, [*excluded, *unfit], index=index, wish=wish)
        found = self._policy.replacement(available, ensemble, excluded, index=index, wish=wish)
        if not self._strict:
            return found
        raise NotEnoughBookies(
            f"{found}, and each other bookie that can be used, is on a host that has a copy already "
            f"({', '.join(sorted(name for _kind, name in taken))}); "
            "start a bookie on another host, or set enforceDifferentHosts=false"
        )
