"""
What a user reads when something goes wrong, over the blocking face and real bookies: which bookies failed and how,
which quorum is missing, what to do.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

import quire.client.api as api
from quire.client import (
    AddEntryQuorumTimeout,
    BookieHandleNotAvailable,
    Client,
    ClientClosed,
    ClientOptions,
    DuplicateEntryId,
    IllegalOp,
    LedgerClosed,
    LedgerExist,
    LedgerFenced,
    LedgerRecovery,
    MetaStore,
    NoSuchLedger,
    NotEnoughBookies,
    Read,
    Timeout,
    UnauthorizedAccess,
    Write,
    connect,
)
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import MetadataTooLarge
from quire.tools.local_cluster.cluster import LocalCluster
from tests.client.fakes.cluster import FakeCluster
from tests.reactor import reactor, run
from tests.stopped import stop

SMALL = {
    "journalSegmentSizeMB": "4",
    "dbStorage_writeCacheMaxSizeMb": "32",
    "diskUsageThreshold": "0.999",
    "diskUsageWarnThreshold": "0.999",
}
SHORT = {"add_timeout_ms": 2500, "read_timeout_ms": 2500, "long_poll_ms": 500, "speculative_read_ms": 500}


@contextmanager
def raised(kind: type[Exception], *parts: str) -> Iterator[None]:
    """The block fails with that error, whose text has all the parts."""
    with pytest.raises(kind) as caught:
        yield
    for part in parts:
        assert part in str(caught.value), f"no {part!r} in: {caught.value}"


def test_errors_over_real_bookies(tmp_path: Path) -> None:
    """One cluster and one way down: everything works, then two bookies hang, then they are gone, then all are."""
    with LocalCluster(tmp_path, 3, options=SMALL) as cluster, connect(cluster.uri) as bk:
        of_the_ledger(bk)
        with connect(cluster.uri) as other:
            of_lost_writers(bk, other)
            damaged(cluster, bk, other)
        hung(cluster)
        gone(cluster, bk)


def of_the_ledger(bk: Client) -> None:
    with raised(NoSuchLedger, "has no ledger 99", "`quire ledger list`"):
        bk.open_ledger(99)
    with raised(
        NotEnoughBookies, "5 bookies are needed", "3 of the 3 writable", "start more, or ask for a smaller ensemble"
    ):
        bk.create_ledger(ensemble_size=5)
    with bk.create_ledger(password=b"right") as writer:
        writer.append(b"a")
        with raised(LedgerExist, f"ledger {writer.id} exists already", "give another id"):
            bk.create_ledger(ledger_id=writer.id)
        with raised(UnauthorizedAccess, f"ledger {writer.id}", "not the password", "nothing was touched"):
            bk.open_ledger(writer.id, b"wrong")
        with raised(IllegalOp, "entry id 7 was given, the next one is 1", "advanced=True"):
            writer.append_at(7, b"x")
        with (
            bk.open_ledger(writer.id, b"right", recover=False) as reader,
            raised(Read, "entry 5 is past", "read_last_confirmed()"),
        ):
            reader.read(0, 5)
    with raised(LedgerClosed, "the ledger is closed; create another to go on"):
        writer.append(b"b")
    with raised(LedgerClosed, "the ledger is closed; create another to go on"):
        writer.force()
    with raised(Read, "entry 3 is past 0, the last entry of this closed ledger"):
        bk.open_ledger(writer.id, b"right").read(0, 3)
    with bk.create_ledger(advanced=True) as writer:
        writer.append_at(0, b"a")
        with raised(DuplicateEntryId, "entry 0 was written already"):
            writer.append_at(0, b"a")
        with raised(IllegalOp, "append_at(entry_id, data)"):
            writer.append(b"a")


def of_lost_writers(bk: Client, other: Client) -> None:
    writer = bk.create_ledger()
    writer.append(b"a")
    other.open_ledger(writer.id).close()
    fenced = (
        "127.0.0.1:",
        "refused entry 1",
        "another client opened the ledger for recovery; open it to see where it ends",
    )
    with raised(LedgerFenced, "append up to entry 1 (acknowledged: 0)", *fenced):
        writer.append(b"b")
    with raised(LedgerClosed, "this writer has ended", *fenced):
        writer.append(b"b")
    with raised(LedgerFenced, *fenced):
        writer.close()
    writer = bk.create_ledger()
    other.delete_ledger(writer.id)
    with raised(NoSuchLedger, f"has no ledger {writer.id}"):
        writer.close()
    orphan = other.create_ledger()
    other.close()
    with raised(ClientClosed, "the client was closed"):
        orphan.append(b"a")
    with raised(ClientClosed, "this client was closed"):
        other.open_ledger(orphan.id)


def damaged(cluster: LocalCluster, bk: Client, other: Client) -> None:
    """Every copy of the only entry is something else than what its digest says."""
    writer = bk.create_ledger()
    writer.append(b"a")

    async def spoil() -> None:
        client = await api.connect(reactor, cluster.uri)
        wrong = AddBatch(Digest(DigestType.DUMMY, b""), writer.id, 0, -1, 0, [b"12345"])
        for bookie in cluster.ids:
            done: Deferred[int] = Deferred()
            channel = client.pool.add_channel(bookie, writer.id, Answered(done))
            channel.send(wrong)
            assert await done == 0
            channel.close()
        await client.close()

    run(spoil)
    bad = [f"{bookie} sent bytes whose digest is wrong" for bookie in cluster.ids]
    check = f"`quire ledger check {writer.id}`"
    with raised(LedgerRecovery, f"ledger {writer.id} can't be recovered", "none with whole bytes", *bad, check):
        bk.open_ledger(writer.id)
    with raised(Read, f"ledger {writer.id} can't be opened", *bad, check):
        bk.open_ledger(writer.id, recover=False)


class Answered:
    """An add channel's sink for one add."""

    def __init__(self, done: "Deferred[int]") -> None:
        self.done = done

    def acked(self, _channel: object, _first: int, _count: int, code: int, /) -> None:
        self.done.callback(code)

    def failed(self, _channel: object, code: int, _reason: str, /) -> None:
        self.done.callback(code)


def hung(cluster: LocalCluster) -> None:
    """Two of three bookies are stopped in their tracks; everything is asked at once, and waits at the same time."""
    one, two, three = cluster.ids
    with (
        ThreadPoolExecutor(5) as asking,
        connect(cluster.uri, ClientOptions(**SHORT)) as bk,
        connect(
            cluster.uri, ClientOptions(**SHORT, add_quorum_timeout_ms=3000, disable_ensemble_change=True)
        ) as patient,
        connect(cluster.uri, ClientOptions(**SHORT, ensemble_changes_max=0)) as fixed,
    ):
        left, writer, forced = bk.create_ledger(), bk.create_ledger(), bk.create_ledger(write_flags="DEFERRED_SYNC")
        waiting, last = patient.create_ledger(), fixed.create_ledger()
        for each in (left, writer, forced, waiting, last):
            each.append(b"a")
        stopped = [cluster.bookie(bookie).pid for bookie in (one, two)]
        for pid in stopped:
            assert pid is not None
            stop(pid)
        try:
            appends = [each.append_async(b"b") for each in (writer, waiting, last)]
            force, opening = asking.submit(forced.force), asking.submit(bk.open_ledger, left.id)
            silent = [f"{bookie} gave no answer in time" for bookie in (one, two)]
            mute = [f"bookie {bookie}, V2: no add was answered for" for bookie in (one, two)]
            with raised(
                Timeout, "entries up to 0 could not be forced", *silent, "all 3 bookies of the ensemble must answer"
            ):
                force.result()
            with raised(
                Timeout,
                f"ledger {left.id} can't be recovered",
                "1 of 3 bookies answered",
                "an ack quorum of 2",
                *silent,
                "`quire bookie list`",
            ):
                opening.result()
            what = (
                "without them some entries miss the ack quorum of 2; start bookies, then open the ledger to see "
                "where it ends"
            )
            with raised(
                NotEnoughBookies, "append up to entry 1 (acknowledged: 0)", *mute, "failed lately", three, what
            ):
                appends[0].result()
            with raised(LedgerClosed, "this writer has ended", *mute):
                writer.append(b"c")
            with raised(
                AddEntryQuorumTimeout, "entry 1 missed its ack quorum of 2 for 3000 ms", one, two, "open the ledger"
            ):
                appends[1].result()
            with raised(Write, "no add was answered", "maxNumEnsembleChanges", "open the ledger to see where it ends"):
                appends[2].result()
        finally:
            for pid in stopped:
                assert pid is not None
                os.kill(pid, signal.SIGCONT)


def gone(cluster: LocalCluster, bk: Client) -> None:
    """Two of three bookies are killed, then the third."""
    with bk.create_ledger() as whole:
        whole.append(b"a")
    writer, later = bk.create_ledger(), bk.create_ledger()
    writer.append(b"a")
    later.append(b"a")
    one, two, three = cluster.ids
    cluster.kill(one)
    cluster.kill(two)
    lost = [f"{bookie} can't be reached" for bookie in (one, two)]
    with raised(
        NotEnoughBookies,
        one,
        two,
        "BookieHandleNotAvailable, code -8",
        "no bookie can replace them",
        "the ack quorum of 2",
        "start bookies",
    ):
        while True:  # the store may still name the dead ones as spares, for as long as their sessions last
            writer.append(b"b")
    with raised(
        LedgerRecovery,
        f"ledger {later.id} can't be recovered",
        "1 of 3 bookies answered",
        *lost,
        "bring some of these back",
    ):
        bk.open_ledger(later.id)
    cluster.kill(three)
    with (
        bk.open_ledger(whole.id) as reader,
        raised(BookieHandleNotAvailable, "entry 0", "one of its 3 replicas", *lost, three, "start one of these"),
    ):
        reader.read(0, 0)


def test_a_store_that_is_down_is_named_and_what_happens_to_the_ledger() -> None:
    """A change that can't be stored names the bookie that failed too; a close says how the ledger comes to its end."""
    from quire.metadata.memory.cluster import Fault

    cluster = FakeCluster(5)
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"a"))
    cluster.store_fault = lambda name, _given: (
        Fault(error=MetaStore("zk://10.0.0.1 does not answer")) if name == "write_ledger" else None
    )
    cluster.kill("b0", "b1")
    with raised(
        MetaStore,
        "the connection to b0 was lost",
        "could not be stored: zk://10.0.0.1 does not answer",
        "open the ledger to see where it ends",
    ):
        raise cluster.fails(writer.append(b"b"))
    writer = cluster.succeed(cluster.client().create_ledger())
    with raised(
        MetaStore,
        "its end could not be stored: zk://10.0.0.1 does not answer",
        "open the ledger, which brings it to its end",
    ):
        raise cluster.fails(writer.close())


def test_an_end_that_is_too_large_for_the_store_says_so() -> None:
    """Of a writer's close, and of a recovery, for which trying again is no advice."""
    from quire.metadata.memory.cluster import Fault

    cluster = FakeCluster(3)
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"a"))
    limit = "a request of 1000001 bytes is above the 1000000 that are sent (zkRequestBytesMax)"
    said = f"its end could not be stored, for its metadata is too large: {limit}"
    cluster.store_fault = lambda name, given: (
        Fault(error=MetadataTooLarge(limit)) if name == "write_ledger" and given[1].is_closed else None
    )
    with raised(MetaStore, f"ledger {writer.id}: {said}; after that, open the ledger"):
        raise cluster.fails(writer.close())
    with raised(LedgerRecovery, f"ledger {writer.id} can't be recovered: {said}", "trying again changes nothing"):
        raise cluster.fails(cluster.client().open_ledger(writer.id))


def test_a_bookie_in_limbo_is_no_answer_and_says_so() -> None:
    """The error names the bookie that may lack entries, and the ledger is not closed."""
    cluster = FakeCluster(3)
    writer = cluster.succeed(cluster.client().create_ledger())
    cluster.succeed(writer.append(b"a"))
    cluster.judge = lambda request: -108 if request.bookie != "b2" and request.op == "fence" else "pass"
    with raised(
        LedgerRecovery,
        "b0 may have lost entries of the ledger, and answers for none until it is repaired",
        "1 of 3 bookies answered",
    ):
        raise cluster.fails(cluster.client().open_ledger(writer.id))
    metadata: LedgerMetadata = cluster.metadata(writer.id)
    assert not metadata.is_closed
