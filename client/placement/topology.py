"""
Where bookies are: "/rack" or "/region/rack" (docs/placement.md); as a file, a script or the metadata store says.

Knows: the last known place of each bookie, how old it may get, and how far two places are apart; which source the
options name, the formats of a file (lines "host place", or the JSON that Pulsar keeps), how a script is called.
Does not know: what placement does with places.

A bookie without a known place is in the default rack.  A source that fails changes nothing: what was known stays known.
"""

import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence

from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger

from quire.client.connections.network import TcpReactor
from quire.conf.client import ClientOptions
from quire.metadata.formats.json_text import parse_json
from quire.metadata.store import ServiceInfo
from quire.metadata.tree_store import MetadataStore
from quire.metadata.worker import Worker
from quire.protocol.errors import BookieHandleNotAvailable, LedgerError

# SPDX-License-Identifier: Apache-2.0

DEFAULT_RACK = "/default-rack"
STALE_SECONDS = 60.0  # a place is asked for again after that

Source = Callable[
    [Mapping[str, str]], Deferred[Mapping[str, str]]
]  # bookie -> host; bookie -> place of those that it knows


def is_default(place: str) -> bool:
    return place.endswith(DEFAULT_RACK)


def region_of(place: str) -> str:
    """ "/eu/r1" -> "eu"; a place without a region is in the default region."""
    parts = place.strip("/").split("/")
    return parts[0] if len(parts) > 1 else "default-region"


def nearness(ours: str, place: str) -> int:
    """0: our rack, 1: our region, 2: elsewhere.  All the same while ours is unknown."""
    if not ours or place == ours:
        return 0
    return 1 if region_of(place) == region_of(ours) and "/" in ours.strip("/") else 2


def host_of(bookie: str, info: ServiceInfo | None) -> str:
    try:
        return info.bookie_address()[0] if info is not None else bookie.rpartition(":")[0] or bookie
    except BookieHandleNotAvailable:
        return bookie


class Topology:
    """Bookies' places, as far as they are known.  `seconds`: the clock."""

    def __init__(self, seconds: Callable[[], float], source: Source | None) -> None:
        self._seconds = seconds
        self._source = source
        self.changes = 0  # of what is known
        self._places: dict[str, str] = {}
        self._asked: dict[str, float] = {}  # when each was asked for, once that had an outcome
        self._turn = DeferredLock()
        self._log = Logger()

    def place_of(self, bookie: str) -> str:
        return self._places.get(bookie, DEFAULT_RACK)

    async def learn(self, bookies: Mapping[str, ServiceInfo | None] | Sequence[str]) -> None:
        """
        Asks for those whose place is unknown or was learned a while ago, one look-up at a time.  While another caller's
        is under way, who needs a place that was never asked for waits for it; old places serve meanwhile.
        """
        infos = bookies if isinstance(bookies, Mapping) else dict.fromkeys(bookies)
        if self._source is None or not self._stale(infos) or (self._turn.locked and self._asked.keys() >= infos.keys()):
            return
        await self._turn.acquire()
        try:
            await self._ask(self._source, {bookie: host_of(bookie, infos[bookie]) for bookie in self._stale(infos)})
        finally:
            self._turn.release()

    def _stale(self, bookies: Collection[str]) -> list[str]:
        oldest = self._seconds() - STALE_SECONDS
        return [bookie for bookie in sorted(bookies) if self._asked.get(bookie, oldest) <= oldest]

    async def _ask(self, source: Source, hosts: Mapping[str, str]) -> None:
        if not hosts:  # another caller asked for them meanwhile
            return
        now = self._seconds()
        try:
            found = await source(hosts)
            self.changes += any(self._places.get(bookie) != place for bookie, place in found.items())
            self._places.update(found)
        except (OSError, ValueError, LedgerError) as error:
            self._log.error("the places of {bookies} are not known: {why}", bookies=", ".join(hosts), why=str(error))
        self._asked.update(dict.fromkeys(hosts, now))


SCRIPT_SECONDS_MAX = 10.0


def source(reactor: TcpReactor, store: MetadataStore, options: ClientOptions) -> Source | None:
    """The source of bookies' places that the options name."""
    if options.topology == "script" and options.topology_script:
        return from_script(reactor, options.topology_script, options.topology_script_hosts_max)
    if options.topology == "file":
        return from_file(options.topology_file)
    return from_store(store) if options.topology == "metadata" else None


def proper(place: object) -> str | None:
    """A place as we keep it, None when the text is none."""
    if not isinstance(place, str) or not place.strip("/ "):
        return None
    return "/" + place.strip().strip("/")


def parse_places(data: bytes) -> dict[str, str]:
    """
    The mapping of a file or znode: Pulsar's JSON ({"group": {"host:port": {"rack": "/region/rack", "hostname": "…"}}}),
    JSON {"host": "/rack"}, or lines "host /rack" (`#` begins a comment).  `ValueError` says what is wrong.
    """
    text = data.decode()
    found: dict[str, str] = {}
    if text.lstrip().startswith("{"):
        tree = parse_json(text)
        for name, value in tree.items():
            if isinstance(value, dict):
                for bookie, facts in value.items():
                    place = proper(facts.get("rack")) if isinstance(facts, dict) else None
                    if place is not None:
                        found[bookie] = place
                        if facts.get("hostname"):
                            found.setdefault(str(facts["hostname"]), place)
            elif (place := proper(value)) is not None:
                found[name] = place
        return found
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        place = proper(words[1]) if len(words) == 2 else None
        if place is None:
            raise ValueError(
                f"line {number}: a host and its place are needed, as in `10.0.0.1 /region/rack`, not {line!r}"
            )
        found[words[0]] = place
    return found


def chosen(mapping: Mapping[str, str], hosts: Mapping[str, str]) -> dict[str, str]:
    """The places of those bookies, named in the mapping by id or by host."""
    return {
        bookie: place
        for bookie, host in hosts.items()
        if (place := mapping.get(bookie) or mapping.get(host)) is not None
    }


def from_file(path: str) -> Source:
    """Reads the file each time."""

    def ask(hosts: Mapping[str, str]) -> Deferred[Mapping[str, str]]:
        with open(path, "rb") as file:
            return succeed(chosen(parse_places(file.read()), hosts))

    return ask


def from_store(store: MetadataStore) -> Source:
    """As Pulsar keeps it, in the znode /bookies."""

    async def ask(hosts: Mapping[str, str]) -> Mapping[str, str]:
        data = await store.places()
        return chosen(parse_places(data), hosts) if data else {}

    return lambda hosts: Deferred.fromCoroutine(ask(hosts))


def ask_script(path: str, hosts: Mapping[str, str], hosts_max: int) -> dict[str, str]:
    """Blocks.  `OSError` or `ValueError` when the script does not print a place for each host."""
    names = sorted(set(hosts.values()))
    mapping: dict[str, str] = {}
    for start in range(0, len(names), hosts_max):
        some = names[start : start + hosts_max]
        try:
            done = subprocess.run(
                [path, *some], stdin=subprocess.DEVNULL, capture_output=True, timeout=SCRIPT_SECONDS_MAX, check=True
            )
        except subprocess.SubprocessError as error:
            raise ValueError(str(error)) from error
        places = done.stdout.decode(errors="replace").split()
        if len(places) != len(some):
            raise ValueError(f"{path} printed {len(places)} places for {len(some)} hosts")
        mapping.update(
            {name: place for name, text in zip(some, places, strict=True) if (place := proper(text)) is not None}
        )
    return chosen(mapping, hosts)


def from_script(reactor: TcpReactor, path: str, hosts_max: int) -> Source:
    """
    The script is given hosts, at most `hosts_max` at a time, and prints one place for each.  It runs on a thread that
    ends with it: a reactor that is not on the main thread hears of no child's end.
    """

    def ask(hosts: Mapping[str, str]) -> Deferred[Mapping[str, str]]:
        answer: Deferred[Mapping[str, str]] = Deferred()

        def work(_jobs: list[str]) -> None:
            try:
                places = ask_script(path, hosts, hosts_max)
            except (OSError, ValueError) as error:
                reactor.callFromThread(answer.errback, error)
            else:
                reactor.callFromThread(answer.callback, places)

        worker = Worker("quire places", work)
        worker.submit(path)
        worker.end()
        return answer

    return ask
