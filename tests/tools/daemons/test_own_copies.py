"""
Bookies as processes that lose their disks and come back under their ids: nothing is missing, and nothing was ever
denied.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.client.api import Client, connect
from quire.conf.client import ClientOptions
from quire.protocol.errors import NoSuchEntry, NoSuchLedgerExists, Read
from quire.tools.daemons.own_copies import AGAIN_S, Refill
from quire.tools.local_cluster.cluster import READY_S, LocalBookie, LocalCluster
from quire.tools.local_cluster.process import NotStarted
from tests.metadata.zk.guarded import told
from tests.reactor import reactor, run
from tests.tools.command import ok
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

NEGATIVE = (NoSuchEntry.code, NoSuchLedgerExists.code)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path, 3, options={**SMALL, "flushInterval": "200"}) as made:
        yield made


def wipe(bookie: LocalBookie, *names: str) -> None:
    """Kills the bookie and leaves empty directories, as new disks are."""
    bookie.end_now()
    for name in names:
        shutil.rmtree(bookie.directory / name)
        (bookie.directory / name).mkdir()


def again(bookie: LocalBookie, *arguments: str) -> None:
    bookie.begin(*arguments)
    bookie.ready(time.monotonic() + READY_S)


async def payloads_on(client: Client, bookie: str, ledger: int, last: int) -> list[int]:
    """The codes of entries 0..last as this one bookie answers."""
    return [(await client.pool.read(bookie, ledger, entry)).code for entry in range(last + 1)]


@pytest.mark.parametrize("lost", [("journal", "ledgers"), ("ledgers",), ("journal",)])
def test_a_bookie_that_lost_disks_comes_back_with_everything(three: LocalCluster, lost: tuple[str, ...]) -> None:
    """
    Closed ledgers, a fenced one, one that is still written: what was acknowledged is on the bookie again, from its
    peers; the fence holds; the open ledger's unconfirmed end is never denied; without --restore it is refused, with the
    command to run.
    """
    bookie = three.bookies[0]
    entries = [b"entry %d " % number + b"x" * (number % 300) for number in range(600)]

    async def write() -> tuple[Client, list[int]]:
        client = await connect(reactor, three.uri)
        ledgers = []
        for kind in ("closed", "fenced", "open"):
            writer = await client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
            await writer.append_many(entries)
            await writer.append_many([b"last"])
            if kind == "closed":
                await writer.close()
            elif kind == "fenced":
                await (await client.open_ledger(writer.id, b"secret")).close()
            ledgers.append(writer.id)
        return client, ledgers

    client, (closed, fenced, left_open) = run(write)
    wipe(bookie, *lost)
    with pytest.raises(NotStarted, match="--restore"):
        again(bookie)
    again(bookie, "--restore")

    async def look() -> None:
        for ledger in (closed, fenced):
            assert await payloads_on(client, bookie.id, ledger, 600) == [0] * 601
            assert (await client.pool.read(bookie.id, ledger, 601)).code == NoSuchEntry.code, (
                "whole again, so it may say no"
            )
        codes = await payloads_on(client, bookie.id, left_open, 602)
        assert codes[:600] == [0] * 600
        assert not set(codes[600:]) & set(NEGATIVE), "what may have been acknowledged to its writer is never denied"
        assert (await client.store.bookies()).writable.keys() >= {bookie.id}

    run(look)
    run(client.close)
    assert ok("ledger", "recover", left_open, metadata=three.uri).code == 0
    for other in three.bookies[1:]:
        three.kill(other.id)
    for ledger in (closed, fenced):
        password = three.directory / "password"
        password.write_bytes(b"secret")
        assert (
            ok("ledger", "read", ledger, "--raw", "--password-file", password, metadata=three.uri).raw
            == b"".join(entries) + b"last"
        )


def test_a_restore_that_was_killed_goes_on_at_the_next_start(three: LocalCluster) -> None:
    """Also by a start without --restore: limbo is durable, and nothing is denied at any time."""
    bookie = three.bookies[2]

    async def write() -> tuple[Client, int]:
        client = await connect(reactor, three.uri)
        writer = await client.create_ledger()
        await writer.append_many([b"x" * 2000] * 1000)
        await writer.close()
        return client, writer.id

    client, ledger = run(write)
    wipe(bookie, "journal", "ledgers")
    for other in three.bookies[:2]:
        other.end_now()
    again(bookie, "--restore")  # it comes up, but no bookie is there to copy from

    async def look() -> list[int]:
        return await payloads_on(client, bookie.id, ledger, 10)

    assert set(run(look)) == {Read.code}, "that is how V2 says unknown"
    bookie.end_now()
    for other in three.bookies[:2]:
        again(other)
    again(bookie)

    async def until_whole() -> None:
        codes = [Read.code]
        while set(codes) != {0}:
            codes = await payloads_on(client, bookie.id, ledger, 999)
            assert not set(codes) & set(NEGATIVE)

    run(until_whole)
    run(client.close)


def test_nothing_begins_after_its_stop() -> None:
    """A bookie that is just stopping may find ledgers in limbo yet: a client that was made then would be left open."""

    class Incomplete:
        asked = 0

        @property
        def incomplete(self) -> bool:
            self.asked += 1
            return False

    limbo = Incomplete()
    refill = Refill(None, SimpleNamespace(limbo=limbo), ClientOptions())  # type: ignore[arg-type]  # what a refill looks at first
    refill.start()
    assert limbo.asked == 1
    Deferred.fromCoroutine(refill.stop())
    refill.start()
    assert limbo.asked == 1


def test_a_failure_that_nobody_foresaw_is_not_the_end() -> None:
    """The log has it, who waits for the first round waits no longer, and the next round comes at its time."""
    clock = Clock()
    options = SimpleNamespace(metadata_uri=None)  # no text: what opens it fails
    bookie = SimpleNamespace(
        limbo=SimpleNamespace(incomplete=True), options=options, id="b:1", restoring=True, ended=Deferred()
    )
    with told("critical") as lines:
        refill = Refill(clock, bookie, ClientOptions())  # type: ignore[arg-type]  # what is used of them
        refill.start()
        clock.advance(AGAIN_S)
        waiting = Deferred.fromCoroutine(refill.first_round())
        assert not waiting.called
        clock.advance(AGAIN_S)
        assert waiting.called
        Deferred.fromCoroutine(refill.stop())
    assert len(lines) == 3
    assert clock.getDelayedCalls() == []
