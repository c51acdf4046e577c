"""
Real bookies as processes, under a writer, a reader that follows it and a recoverer: SIGKILL, SIGSTOP and connections
that are cut in the middle of a frame.  All answers are written down, the bookies are asked at the end what they
hold, and the simulator's own checkers (`tests.simulation.truth`) judge both.
"""

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from quire.client.api import Client, Reader, Writer, connect
from quire.conf.client import ClientOptions
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import Versioned
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import OK
from quire.protocol.messages import AddRun
from quire.tools.local_cluster.cluster import LocalCluster
from tests.client.fakes.cutting import ThroughProxies
from tests.reactor import reactor, run
from tests.simulation.truth import LedgerTruth, Truth
from tests.stopped import stop

SMALL = {
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.999",
}
OPTIONS = ClientOptions(
    add_timeout_ms=1000, read_timeout_ms=1500, long_poll_ms=300, speculative_read_ms=300, read_ahead_bytes_max=1 << 20
)
UNDER_WAY_MAX = 4
ENTRIES_MAX = 20_000  # of one ledger


class Drama:
    """
    One ledger: who acts, and its answers, in order, for the checkers to hear when it is known what bookies hold.
    """

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.wire = ThroughProxies(reactor)
        self.payloads: list[bytes] = []
        self.under_way = 0
        self.ended: BaseException | None = None
        self.seen: list[bytes] = []
        self.clients: list[Client] = []
        self.tail: Deferred[None] | None = None
        self.truth = Truth()
        self.told: list[Callable[[], None]] = []
        self.metadata: list[Versioned[LedgerMetadata]] = []

    async def client(self) -> Client:
        # a reactor but for its connections
        made = await connect(self.wire, self.uri, OPTIONS)  # type: ignore[arg-type]
        self.clients.append(made)
        return made

    async def begin(self, uri: str) -> None:
        self.uri = uri
        client = await self.client()
        self.writer: Writer = await client.create_ledger()
        self.ledger = LedgerTruth(self.writer.id, (3, 3, 2), "w", False)
        self.truth.ledgers[self.ledger.id] = self.ledger
        client.store.watch_ledger(self.ledger.id, lambda found: None if found is None else self.metadata.append(found))
        self.go_on()
        follower: Reader = await (await self.client()).open_ledger(self.writer.id, recover=False)
        self.saw_end(-1, follower)

        async def follow() -> None:
            before = follower.last_entry_id
            async for batch in follower.tail(120.0):
                self.seen += [entry.data for entry in batch]
                self.saw_end(before, follower)
                before = follower.last_entry_id

        self.tail = Deferred.fromCoroutine(follow())

    def go_on(self) -> None:
        while self.ended is None and self.under_way < UNDER_WAY_MAX and len(self.payloads) < ENTRIES_MAX:
            self.append(
                [
                    self.dice.randbytes(size)
                    for size in self.dice.choices([0, 10, 300, 2000], k=self.dice.randrange(1, 30))
                ]
            )

    def append(self, batch: list[bytes]) -> None:
        first = len(self.payloads)
        numbered = [b"%d." % number + payload if payload else payload for number, payload in enumerate(batch, first)]
        self.payloads += numbered
        self.under_way += 1
        self.writer.append_many(numbered).addCallbacks(lambda ids: self.safe(ids, numbered), self.lost)

    def safe(self, ids: range, payloads: list[bytes]) -> None:
        confirmed, known = self.writer.last_add_confirmed, self.metadata[-1].value if self.metadata else None
        self.told += [
            lambda: self.truth.confirm(self.ledger, confirmed, None),
            lambda: self.truth.acknowledged(self.ledger, ids, payloads, known),
        ]
        self.under_way -= 1
        reactor.callLater(0.002, self.go_on)

    def lost(self, failure: Failure) -> None:
        self.under_way -= 1
        self.ended = failure.value

    def saw_end(self, before: int, reader: Reader) -> None:
        confirmed, end, metadata = self.writer.last_add_confirmed, reader.last_entry_id, reader.metadata
        self.told += [
            lambda: self.truth.confirm(self.ledger, confirmed, None),
            lambda: self.truth.saw_end(self.ledger, before, end, metadata),
        ]

    async def pause(self, seconds: float) -> None:
        over: Deferred[None] = Deferred()
        reactor.callLater(seconds, over.callback, None)
        await over

    async def recovered(self) -> list[bytes]:
        """Opens until it succeeds (any number of tries is allowed); all entries."""
        client, tries = await self.client(), 0
        while True:
            tries += 1
            try:
                reader = await client.open_ledger(self.writer.id)
                entries = [entry.data async for batch in reader.stream() for entry in batch]
            except Exception as error:
                if tries == 20:
                    raise AssertionError(f"the ledger can't be recovered: {error}") from error
                await self.pause(0.5)
            else:
                self.opened(reader.last_entry_id, reader.metadata)
                return entries

    def opened(self, end: int, metadata: LedgerMetadata) -> None:
        self.told.append(lambda: self.truth.opened(self.ledger, "a recoverer", end, metadata))

    async def last_append(self) -> None:
        """
        The writer learns by its next append that it lost the ledger, if it lived until now; the reader comes to the
        end.
        """
        while self.ended is None:
            if self.under_way == 0:
                self.append([b"too late"])
            await self.pause(0.05)
        assert self.tail is not None
        await self.tail

    async def ask_bookies(self) -> None:
        """What every bookie that ever was in the ensemble holds now, with good digests."""
        client = await connect(reactor, self.uri, OPTIONS)  # a cut may still be due on the others' way
        self.clients.append(client)
        while not self.metadata[-1].value.is_closed:  # the watch is about to report
            await self.pause(0.05)
        digest = Digest(DigestType.CRC32C, b"")
        for bookie in sorted(
            {bookie for found in self.metadata for fragment in found.value.fragments for bookie in fragment.bookies}
        ):
            listed = await client.pool.list_entries(bookie, self.ledger.id)
            for first, count in listed.runs:
                following = first
                while following < first + count:
                    answer = await client.pool.read_run(
                        bookie, self.ledger.id, following, first + count - following, 1 << 20
                    )
                    assert answer.code == OK, f"{bookie} lists entry {following} and answers {answer.code}"
                    good = len(digest.open_run(self.ledger.id, following, answer.bodies))
                    assert good == len(answer.bodies), f"{bookie} holds a damaged entry {following + good}"
                    run_of = AddRun(self.ledger.id, following, list(answer.bodies), digest.master_key, recovery=True)
                    self.truth.taken(bookie, run_of)
                    self.truth.stored(bookie, run_of)
                    following += len(answer.bodies)

    def judge(self, entries: list[bytes]) -> None:
        """Tells the checkers everything; raises what they find."""
        states = self.metadata
        for before, after in pairwise(states[:-1]):
            self.truth.metadata_written(self.ledger.id, before, after)
        for tell in self.told:
            tell()
        self.truth.metadata_written(self.ledger.id, states[-2], states[-1])
        closed = states[-1].value
        assert closed.is_closed
        by_id = dict(enumerate(entries))
        self.truth.reckon(self.ledger, closed, by_id, self.payloads, ordered=True)
        self.truth.followed(self.ledger, self.seen, by_id, None)
        if self.truth.violation is not None:
            raise self.truth.violation

    async def end(self) -> None:
        self.ended = self.ended or AssertionError("over")
        for client in self.clients:
            await client.close()
        await self.wire.stop()


def strike(cluster: LocalCluster, drama: Drama, what: str) -> None:
    """One bookie is hit, and is back afterwards."""
    dice = drama.dice
    bookie = dice.choice(sorted(cluster.ids))
    if what == "kill":
        cluster.kill(bookie)
        run(lambda: drama.pause(dice.random()))
        cluster.restart(bookie)
    elif what == "stop":
        pid = cluster.bookie(bookie).pid
        assert pid is not None
        stop(pid)
        try:
            run(lambda: drama.pause(dice.choice([0.2, 1.5])))
        finally:
            os.kill(pid, signal.SIGCONT)
    else:

        async def cut() -> None:
            drama.wire.cut(int(bookie.rpartition(":")[2]), dice.randrange(1, 20_000))
            await drama.pause(0.3)

        run(cut)


def round_of(cluster: LocalCluster, seed: int) -> Drama:
    drama = Drama(Random(seed))
    try:
        run(lambda: drama.begin(cluster.uri))
        for _ in range(drama.dice.randrange(1, 4)):
            run(lambda: drama.pause(0.1))
            strike(cluster, drama, drama.dice.choice(["kill", "stop", "cut", "cut"]))
        entries = run(drama.recovered)
        assert run(drama.recovered) == entries
        run(drama.last_append)
        run(drama.ask_bookies)
        drama.judge(entries)
    except BaseException as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error
    finally:
        run(drama.end)
    return drama


def rounds(directory: Path, seeds: range) -> list[LedgerTruth]:
    with LocalCluster(directory, 4, options=SMALL) as cluster:
        return [round_of(cluster, seed).ledger for seed in seeds]


def test_a_writer_a_follower_and_a_recoverer_live_through_kills_stops_and_cuts(tmp_path: Path) -> None:
    """Acknowledged entries are kept in every round."""
    heard = rounds(tmp_path, range(3))
    assert any(truth.acked for truth in heard)
    assert all(truth.kept and truth.ends for truth in heard if truth.acked)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_many_rounds_of_kills_stops_and_cuts(tmp_path: Path) -> None:
    """Acknowledged entries are kept through a hundred rounds with other seeds."""
    rounds(tmp_path, range(1000, 1100))
