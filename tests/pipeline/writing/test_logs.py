"""Rows into a log, as tasks and drivers do it, with a log on real bookies."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from quire.conf.pipeline import LogWriting
from quire.log import partition_for
from quire.log.api import PartWriter, Receipt
from quire.pipeline.clients import Cluster
from quire.pipeline.writing.logs import Work, Written, are_done, prepare, publish, withdraw, work_of, write
from quire.protocol.errors import MetaStore
from quire.protocol.log_errors import LogFenced, NoSuchLog
from tests.pipeline.written import NAMES, log, values_of

# SPDX-License-Identifier: Apache-2.0

ATTEMPTS = count()


def writing(ours: Cluster, name: str, **options: str) -> LogWriting:
    return LogWriting.of({"metadata": ours.uri, "log": name, **options})


def arrow(*values: bytes) -> Any:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])


def work(batch: int, run: str = "run") -> Work:
    return Work("txn", run, batch, 0, 0)


def task(ours: Cluster, options: LogWriting, batch: int, part: int, *values: bytes, run: str = "run") -> Written:
    mine = Work("txn", run, batch, part, next(ATTEMPTS))
    return write(ours, options, mine, [arrow(value) for value in values])


def published(ours: Cluster, options: LogWriting, work: Work, parts: list[Written]) -> Receipt:
    return publish(ours, options, work, parts, [options.log])[options.log]


def test_parts_are_published_in_their_order(ours: Cluster) -> None:
    """However the tasks' messages come; a task without rows has no part; again it changes nothing."""
    options = writing(ours, log(ours, [b"before"]))
    parts = [task(ours, options, 0, 1, b"c"), task(ours, options, 0, 2), task(ours, options, 0, 0, b"a", b"b")]
    assert values_of(ours, options.log) == [b"before"]
    for again in (False, True):
        receipt = published(ours, options, work(0), parts)
        assert (receipt.first, receipt.end, receipt.again) == (1, 4, again)
    assert values_of(ours, options.log) == [b"before", b"a", b"b", b"c"]
    assert published(ours, options, work(1), []).end == 4


def test_most_tasks_have_no_rows(ours: Cluster) -> None:
    """As behind a filter: however many they are, those that have some are published."""
    options = writing(ours, log(ours, []))
    nothing = task(ours, options, 0, 0)
    assert list(ours.each(lambda: ours.logs.txns(options.log))) == [], "it did not ask for anything"
    some = [task(ours, options, 0, 5_000, b"a"), task(ours, options, 0, 9_999, b"b")]
    receipt = published(ours, options, work(0), [*[nothing] * 5_000, *some])
    assert (receipt.first, receipt.end) == (0, 2)
    published(ours, options, work(1), [nothing])
    assert values_of(ours, options.log) == [b"a", b"b"]


def test_what_is_withdrawn_is_gone(ours: Cluster) -> None:
    """Unless it was published: an abort after a commit whose answer was lost touches nothing."""
    options = writing(ours, log(ours, []))
    first = [task(ours, options, 0, 0, b"a")]
    published(ours, options, work(0), first)
    withdraw(ours, options, work(0), [], [options.log])
    task(ours, options, 1, 0, b"b")
    withdraw(ours, options, work(1), [], [options.log])
    with pytest.raises(LogFenced):
        task(ours, options, 1, 1, b"late")
    assert values_of(ours, options.log) == [b"a"]
    third = [task(ours, options, 1, 0, b"c", run="next run")]
    published(ours, options, work(1, "next run"), third)
    assert values_of(ours, options.log) == [b"a", b"c"]
    with pytest.raises(LogFenced):
        task(ours, options, 2, 0, b"d")


def test_a_task_that_fails_leaves_nothing(ours: Cluster) -> None:
    """Its part is deleted, and its error goes on."""
    options = writing(ours, log(ours, []))

    def broken() -> Iterator[Any]:
        yield arrow(b"a")
        raise OSError("the rows end here")

    before = ours.wait(lambda: ours.client.ledger_ids(-1, 10_000))
    with pytest.raises(OSError, match="the rows end here"):
        write(ours, options, Work("txn", "run", 0, 0, 0), broken())
    assert ours.wait(lambda: ours.client.ledger_ids(-1, 10_000)) == before


def test_a_task_that_fails_while_the_store_is_away(ours: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own error goes on, not that of the deletion."""
    options = writing(ours, log(ours, []))

    async def away(_part: PartWriter) -> None:
        raise MetaStore("no answer")

    def broken() -> Iterator[Any]:
        yield arrow(b"a")
        raise OSError("the rows end here")

    monkeypatch.setattr(PartWriter, "discard", away)
    with pytest.raises(OSError, match="the rows end here"):
        write(ours, options, Work("txn", "run", 0, 0, 0), broken())


def test_a_log_that_is_not_there(ours: Cluster) -> None:
    """Is an error that names the command, or is created."""
    name = next(NAMES)
    with pytest.raises(NoSuchLog, match="quire log create"):
        prepare(ours, writing(ours, name), name)
    for _ in range(2):
        assert prepare(ours, writing(ours, name, create="true"), name) == [name]
    assert values_of(ours, name) == []


def test_an_earlier_batch_is_not_written_again_to_partitions_that_came_later(ours: Cluster) -> None:
    """The first partition has each batch last, also one without rows of its own, and so knows that it is done."""
    name = next(NAMES)
    ours.wait(lambda: ours.logs.create(name, partitions=2))
    keys = [key for key in (b"%d" % number for number in range(50)) if partition_for(key, 2) == 1]

    def done(batch: int) -> int:
        options = writing(ours, name, txnAppId="writer", txnVersion=str(batch))
        of, logs = work_of(ours, options), prepare(ours, options, name)
        if are_done(ours, options, of, logs):
            return 0
        rows = pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())})
        written = write(ours, options, of, [rows], logs)
        publish(ours, options, of, [written], logs)
        return sum(part.ledgers[0].records for part in written.parts.values())

    assert [done(0), done(1)] == [len(keys)] * 2
    ours.wait(lambda: ours.logs.update(name, partitions=7))
    assert [done(0), done(1)] == [0, 0]
    assert done(2) == len(keys)
    held = [values_of(ours, log) for log in ours.wait(lambda: ours.logs.partitions(name))]
    assert sorted(value for values in held for value in values) == sorted(keys * 3)
