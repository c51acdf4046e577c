"""Apache's AutoRecovery and ours in one cluster: both repair, one audits, and each takes over from the other."""

import os
import pathlib
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from kazoo.client import KazooClient

from quire.replication.checker import check_ledger
from tests.interop import peer
from tests.interop.healing import Healer
from tests.interop.ours import Bookies, Ours, pulsars_keys
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

LEDGERS = int(os.environ.get("HEALING", "60"))  # that name the bookie which is lost; 500 once, before a release
ENTRIES = 10
SESSION_S = 4.0
WAIT_S = 240.0


class Healed:
    """A cluster of four bookies of ours with a ZooKeeper, both kinds of AutoRecovery, and a client."""

    def __init__(self, apache: peer.Cluster, bookies: Bookies, folder: pathlib.Path, client: Ours) -> None:
        self.metadata, self.bookies, self.folder, self.client = apache.metadata, bookies, folder, client
        self.healers: list[Healer] = []

    def heal(self, ours: bool, **options: object) -> Healer:
        """Starts one more; it has voted when this returns."""
        made = Healer(self.folder / f"healer{len(self.healers)}", self.metadata, ours, zkTimeout=4000, **options)
        self.healers.append(made)
        self.client.until("the vote", lambda: made.id in self.votes(), 60)
        return made

    def znodes(self, path: str) -> list[str]:
        """The names below a znode of the repair tree."""
        client = KazooClient(urlsplit(self.metadata.replace("+hierarchical", "")).netloc)
        client.start()
        try:
            root = f"/ledgers/underreplication{path}"
            return list(client.get_children(root)) if client.exists(root) else []
        finally:
            client.stop()
            client.close()

    def votes(self) -> str:
        client = KazooClient(urlsplit(self.metadata.replace("+hierarchical", "")).netloc)
        client.start()
        try:
            root = "/ledgers/underreplication/auditorelection"
            names = client.get_children(root) if client.exists(root) else []
            return " ".join(client.get(f"{root}/{name}")[0].decode() for name in names)
        finally:
            client.stop()
            client.close()

    def auditor(self) -> str | None:
        async def story() -> str | None:
            return (await self.client.client.store.auditing.election()).auditor

        return run(story)

    def registered(self) -> set[str]:
        async def story() -> set[str]:
            listed = await self.client.client.store.bookies()
            return {*listed.writable, *listed.read_only}

        return run(story)

    def cookies(self) -> list[str]:
        async def story() -> list[str]:
            return await self.client.client.store.cookies()

        return run(story)

    def short(self) -> list[int]:
        """The queue."""

        async def story() -> list[int]:
            return [each.ledger for each in await self.client.client.store.repairs.shortages(limit=10_000)]

        return run(story)

    def version(self, ledger: int) -> int:
        async def story() -> int:
            return (await self.client.client.store.read_ledger(ledger)).version

        return run(story)

    def named(self, ledger: int) -> tuple[str, ...]:
        async def story() -> tuple[str, ...]:
            metadata = await self.client.client.metadata(ledger)
            return tuple(bookie for fragment in metadata.fragments for bookie in fragment.bookies)

        return run(story)

    def wait(self, what: str, true: object, seconds: float = WAIT_S) -> None:
        end = time.monotonic() + seconds
        while not true():  # type: ignore[operator]
            assert time.monotonic() < end, f"after {seconds:g} s not yet: {what}"


@pytest.fixture
def healed(tmp_path: pathlib.Path) -> Iterator[Healed]:
    with (
        peer.Cluster(bookies=0) as apache,
        Bookies(tmp_path, apache.metadata, 5, **pulsars_keys()) as bookies,
        Ours(apache.metadata) as client,
    ):
        made = Healed(apache, bookies, tmp_path, client)
        yield made
        for healer in made.healers:
            healer.process.kill()


def test_both_repair_each_ledger_once(healed: Healed) -> None:
    """One version of the metadata for each fragment, all copies there, the queue empty to its inner nodes, no error."""
    lost = healed.bookies.ids[0]
    ledgers: list[int] = []
    others: list[int] = []
    while len(ledgers) < LEDGERS:
        ledger = healed.client.write([b"entry %d" % number for number in range(ENTRIES)])
        (ledgers if lost in healed.named(ledger) else others).append(ledger)
    before = {ledger: healed.version(ledger) for ledger in (*ledgers, *others)}
    apache, ours = healed.heal(False), healed.heal(True)
    healed.bookies.kill(lost)
    healed.wait("the ledgers name others", lambda: not any(lost in healed.named(each) for each in ledgers))
    healed.wait("the queue is empty", lambda: not healed.short())
    for ledger in ledgers:
        assert healed.version(ledger) == before[ledger] + 1
        found = run(lambda ledger=ledger: check_ledger(healed.client.client, ledger))
        assert found.complete
    assert [healed.version(ledger) for ledger in others] == [before[ledger] for ledger in others]
    healed.wait("no inner nodes are left", lambda: healed.znodes("/ledgers") == [], 30)
    assert healed.znodes("/locks") == []
    assert apache.complaints(lost) == []
    assert ours.complaints(lost) == []


@pytest.mark.parametrize("ours_first", [False, True])
def test_the_other_kind_takes_over(healed: Healed, ours_first: bool) -> None:
    """The elected one is killed: once its session is over the other audits, and both say who."""
    first, second = healed.heal(ours_first), healed.heal(not ours_first)
    assert healed.auditor() == first.id
    assert first.id in peer.shell(healed.metadata, "whoisauditor")
    ledger = healed.client.write([b"entry"], ensemble_size=4, write_quorum=4, ack_quorum=3)
    lost = healed.named(ledger)[0]
    first.process.kill()
    killed = time.monotonic()
    healed.bookies.kill(lost)
    healed.wait("the other one is the auditor", lambda: healed.auditor() == second.id, 30)
    assert time.monotonic() - killed < SESSION_S + 2 + 4  # ZooKeeper looks for sessions that ended every tick
    assert second.id in peer.shell(healed.metadata, "whoisauditor")
    healed.wait("the lost bookie is replaced", lambda: lost not in healed.named(ledger), 60)
    assert second.complaints(lost) == []


def test_apache_s_tools_steer_our_process(healed: Healed) -> None:
    """Its shell turns repair off and on, asks for an audit, and decommissions a bookie, with nobody but us to do it."""
    ours = healed.heal(True, lostBookieRecoveryDelay=3600)
    ledgers = [healed.client.write([b"entry"]) for _ in range(10)]
    lost = next(iter(healed.named(ledgers[0])))
    named = [ledger for ledger in ledgers if lost in healed.named(ledger)]
    peer.shell(healed.metadata, "autorecovery", "-disable")
    healed.bookies.kill(lost)
    healed.wait("the store noticed", lambda: lost not in healed.registered(), 60)
    assert healed.short() == []
    peer.shell(healed.metadata, "autorecovery", "-enable")
    peer.shell(healed.metadata, "triggeraudit")
    healed.wait("its ledgers name others", lambda: not any(lost in healed.named(each) for each in named), 60)
    healed.wait("the queue is empty", lambda: not healed.short(), 30)
    assert str(named[0]) not in peer.shell(healed.metadata, "listunderreplicated").split()
    peer.shell(healed.metadata, "decommissionbookie", "-bookieid", lost)
    assert lost not in healed.cookies()
    assert ours.complaints(lost) == []
