"""
Disks, processors and links of the model: bodies are lengths here, and time is what they take.

Knows: that each carries so many bytes a second, one after the other, and what each has carried.
Does not know: ledgers, bookies' lives.

A transfer reserves each link of its way behind what was reserved before, and ends with the last of them: a pipeline of
queues.  Fair shares of a link among many transfers end in the mean at the same time, for all are long beside a piece.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

# SPDX-License-Identifier: Apache-2.0

MB = 1_000_000


@dataclass(slots=True)
class Link:
    """One thing that carries bytes.  `kind`: what it is summed up with."""

    kind: str
    rate: float
    free_at: float = 0.0
    carried: float = 0.0

    def take(self, now: float, size: float) -> float:
        """Reserves the time for so many bytes; returns when it is over."""
        self.free_at = max(now, self.free_at) + size / self.rate
        self.carried += size
        return self.free_at


@dataclass(frozen=True, slots=True)
class Rates:
    """Bytes a second: of a disk, a host's link, one process that copies, a rack's uplink, a region's."""

    disk: float = 400 * MB
    host: float = 1250 * MB
    copier: float = 300 * MB
    rack: float = 12_500 * MB
    region: float = 25_000 * MB


@dataclass(slots=True)
class Host:
    """One machine with a bookie on it, and perhaps a process that repairs."""

    rack: str
    region: str
    reads: Link
    writes: Link
    out: Link
    into: Link
    copier: Link


@dataclass(slots=True)
class Network:
    """All of it; `carried` sums up by kind."""

    rates: Rates = field(default_factory=Rates)
    links: dict[tuple[str, str], Link] = field(default_factory=dict)

    def _link(self, kind: str, name: str, rate: float) -> Link:
        return self.links.setdefault((kind, name), Link(kind, rate))

    def host(self, name: str, rack: str, region: str) -> Host:
        """Adds a machine."""
        rates = self.rates
        return Host(
            rack,
            region,
            self._link("disk reads", name, rates.disk),
            self._link("disk writes", name, rates.disk),
            self._link("host out", name, rates.host),
            self._link("host in", name, rates.host),
            self._link("copier", name, rates.copier),
        )

    def way(self, source: Host, target: Host) -> Iterable[Link]:
        """The links from one host to another; none on one machine."""
        if source is target:
            return
        yield source.out
        if source.rack != target.rack:
            yield self._link("rack out", source.rack, self.rates.rack)
            if source.region != target.region:
                yield self._link("region out", source.region, self.rates.region)
                yield self._link("region in", target.region, self.rates.region)
            yield self._link("rack in", target.rack, self.rates.rack)
        yield target.into

    def copied(self, now: float, size: float, source: Host, by: Host, target: Host) -> float:
        """Reads from one host and stores on another, through the process that copies; returns when it is over."""
        links = [source.reads, *self.way(source, by), by.copier, *self.way(by, target), target.writes]
        return max(link.take(now, size) for link in links)

    def carried(self) -> dict[str, float]:
        """Bytes by kind of link."""
        found: dict[str, float] = {}
        for link in self.links.values():
            found[link.kind] = found.get(link.kind, 0.0) + link.carried
        return found

    def busiest(self, kind: str) -> Link:
        """The link of a kind that carried most of its time."""
        return max((each for each in self.links.values() if each.kind == kind), key=lambda each: each.carried)
