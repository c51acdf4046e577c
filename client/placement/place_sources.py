"""
Where the places of bookies come from: a file, a script, or the metadata store (docs/placement.md).

Knows: which of them the options name, the formats of a file (lines "host place", or the JSON that Pulsar keeps) and
how a script is called.
Does not know: how long a place is believed, and what a failure leads to (`topology`).
"""

import subprocess
from collections.abc import Mapping

from twisted.internet.defer import Deferred, succeed

from quire.client.connections.network import TcpReactor
from quire.client.placement.topology import Source
from quire.conf.client import ClientOptions
from quire.metadata.formats.json_text import parse_json
from quire.metadata.store import MetadataStore
from quire.metadata.worker import Worker

# SPDX-License-Identifier: Apache-2.0

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
