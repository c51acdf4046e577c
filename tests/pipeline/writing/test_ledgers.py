"""Rows as one ledger, on real bookies."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from quire.conf.pipeline import LedgerWriting
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.ledgers.buckets import BUCKETS_MAX
from quire.metadata.ledgers.layout import Layout
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.store import Versioned
from quire.pipeline.clients import Cluster
from quire.pipeline.writing.ledgers import TAG, Job, begin, discard, keep, withdraw, write
from quire.protocol.errors import LedgerExist, NoSuchLedger, NotEnoughBookies
from tests.metadata.made import ledger as metadata
from tests.pipeline.written import entries_of, ledger
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def arrow(*values: bytes) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])


def test_its_entries_are_the_rows(ours: Cluster) -> None:
    """In their order; the ledger is closed and says which job made it."""
    options = LedgerWriting.of({"metadata": ours.uri, "ensemble": "2", "writeQuorum": "2", "digest": "CRC32"})
    done = write(ours, options, Job("a job", 0), [arrow(b"a", b"b"), arrow(), arrow(b"c")])
    assert done.ledger is not None
    assert done.entries == 3
    assert entries_of(ours, done.ledger) == [b"a", b"b", b"c"]
    metadata = ours.wait(lambda: ours.client.metadata(done.ledger or 0))
    assert metadata.is_closed
    assert metadata.custom[TAG] == b"a job"
    assert metadata.ensemble_size == 2


def test_without_rows_there_is_no_ledger(ours: Cluster) -> None:
    """An empty one would mean nothing."""
    assert write(ours, LedgerWriting.of({"metadata": ours.uri}), Job("", 0), [arrow()]).ledger is None


def test_a_task_that_fails_leaves_no_ledger(ours: Cluster) -> None:
    """And its error goes on; a taken id is an error at once."""

    def broken() -> Iterator[Any]:
        yield arrow(b"a")
        raise OSError("the rows end here")

    before = ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    with pytest.raises(OSError, match="the rows end here"):
        write(ours, LedgerWriting.of({"metadata": ours.uri}), Job("", 0), broken())
    assert ours.wait(lambda: ours.client.ledger_ids(-1, 10_000)) == before
    taken = ledger(ours, [b"x"])
    with pytest.raises(LedgerExist):
        write(ours, LedgerWriting.of({"metadata": ours.uri, "ledgerId": str(taken)}), Job("", 0), [arrow(b"a")])
    ours.wait(lambda: discard(ours, taken))
    with pytest.raises(NoSuchLedger):
        ours.wait(lambda: ours.client.metadata(taken))


def test_a_task_that_fails_while_bookies_are_away(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own error goes on, not that of the deletion, which is left to the job."""

    def broken() -> Iterator[Any]:
        yield arrow(b"a")
        raise OSError("the rows end here")

    async def away(_ledger: int) -> None:
        raise NotEnoughBookies("no answer")

    options = LedgerWriting.of({"metadata": ours.uri})
    job = begin(ours, options)
    with monkeypatch.context() as patched:
        patched.setattr(ours.client, "recover_ledger", away)
        with pytest.raises(OSError, match="the rows end here"):
            write(ours, options, job, broken())
    (left,) = ours.wait(lambda: ours.client.ledger_ids(job.first - 1))
    withdraw(ours, job)
    assert left not in ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))


def test_one_ledger_of_a_job_is_kept(ours: Cluster) -> None:
    """What another attempt wrote goes, and nothing where it is not known which one that is."""
    options = LedgerWriting.of({"metadata": ours.uri})
    job = begin(ours, options)
    first, second = (write(ours, options, job, [arrow(b"a")]).ledger for _attempt in range(2))
    keep(ours, options, job, None)
    assert ours.wait(lambda: ours.client.ledger_ids(job.first - 1)) == [first, second]
    keep(ours, options, job, second)
    assert ours.wait(lambda: ours.client.ledger_ids(job.first - 1)) == [second]


def test_no_ledger_has_an_id_from_before_its_job(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of ZooKeeper draw ids for later, and a task's process may be an old one: no abort found its ledger."""
    store, options = ours.client.store, LedgerWriting.of({"metadata": ours.uri})
    drawn = ours.wait(store.new_ledger_id)

    async def from_its_block(metadata: LedgerMetadata) -> tuple[int, Versioned[LedgerMetadata]]:
        return drawn, await store.create_ledger(drawn, metadata)

    monkeypatch.setattr(store, "create_new_ledger", from_its_block)
    job = begin(ours, options)
    made = write(ours, options, job, [arrow(b"a")]).ledger
    withdraw(ours, job)
    assert not {made, drawn} & set(ours.wait(lambda: ours.client.ledger_ids(-1, 10_000)))


def test_what_a_job_wrote_is_found_again(ours: Cluster) -> None:
    """By what its ledgers are tagged with, whoever heard of them; those of other jobs stay."""
    options = LedgerWriting.of({"metadata": ours.uri})
    one, other = begin(ours, options), begin(ours, options)
    mine, theirs = (write(ours, options, job, [arrow(b"a")]).ledger for job in (one, other))
    withdraw(ours, one)
    left = ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    assert mine not in left
    assert theirs in left
    options = LedgerWriting.of({"metadata": ours.uri, "ledgerId": "77777"})
    chosen = begin(ours, options)
    assert write(ours, options, chosen, [arrow(b"a")]).ledger == 77_777
    withdraw(ours, chosen)
    assert 77_777 not in ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))


def test_how_a_jobs_ledgers_are_looked_for(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many in one question, for a commit looks at all that others made meanwhile; one that was chosen alone."""
    read_ledgers, asked = ours.client.store.read_ledgers, list[list[int]]()

    def noted(ledgers: list[int]) -> Any:
        asked.append(list(ledgers))
        return read_ledgers(ledgers)

    options = LedgerWriting.of({"metadata": ours.uri})
    job = begin(ours, options)
    other = ledger(ours, [b"x"])
    some = sorted(write(ours, options, job, [arrow(b"a")]).ledger for _ in range(2))
    monkeypatch.setattr(ours.client.store, "read_ledgers", noted)
    monkeypatch.setattr(ours.client, "metadata", None)
    withdraw(ours, Job(job.id, job.first))
    assert [[each for each in page if each in some] for page in asked] == [some]
    withdraw(ours, begin(ours, LedgerWriting.of({"metadata": ours.uri, "ledgerId": str(other)})))
    assert asked[-1] == [other]
    left = ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    assert other in left
    assert not {*some} & {*left}


def test_a_job_is_found_where_ids_are_in_no_order() -> None:
    """In Apache's layout of etcd most ids are below one that was given before; those from before are not read."""
    store = MemoryStore(reactor, MemoryCluster("jobs"), layout=Layout.APACHE_ETCD)
    gone: list[int] = []
    looked: list[int] = []

    async def recover(ledger: int) -> None:
        gone.append(ledger)

    def read(ledgers: Sequence[int]) -> Any:
        looked.extend(ledgers)
        return MemoryStore.read_ledgers(store, ledgers)

    client = SimpleNamespace(
        store=store, ledger_ids=store.ledger_ids, recover_ledger=recover, delete_ledger=store.delete_ledger
    )
    cluster: Any = SimpleNamespace(client=client, wait=run, new_id=lambda: "a job")

    def made(count: int, job: bytes) -> list[int]:
        return [run(lambda: store.create_new_ledger(metadata(custom={TAG: job})))[0] for _ in range(count)]

    run(store.init_cluster)
    old = made(BUCKETS_MAX + 3, b"an old job")
    job = begin(cluster, LedgerWriting.of({"metadata": "memory://jobs"}))
    mine, theirs = made(5, b"a job"), made(2, b"another")
    assert min(mine) < max(old)
    store.read_ledgers = read  # type: ignore[method-assign]
    withdraw(cluster, job, mine[0])
    assert sorted(gone) == sorted(mine[1:])
    assert sorted(looked) == sorted(mine + theirs)
    assert set(run(store.ledger_ids)) == {*old, *theirs, mine[0]}
