"""Where a pass has come to: what is written is read, and what can't be read is nothing."""

import pytest

from quire.replication.autorecovery.walk import Resume, Stretch
from tests.client.fakes.cluster import FakeCluster
from tests.metadata.stored import records
from tests.replication.autorecovery.processes import AWAY

# SPDX-License-Identifier: Apache-2.0

PATH = "autorecovery/passes/losses"


def test_what_is_written_is_read() -> None:
    """The newest; an empty list leaves no record."""
    cluster = FakeCluster(3)
    resume = Resume(cluster.store.records, "losses")
    assert cluster.succeed(resume.read()) == []
    left = [Stretch(("b1", "b2"), 7, None), Stretch(("b2",), -1, 7)]
    for each in (left, left[1:], left):
        cluster.succeed(resume.write(each))
        assert cluster.succeed(resume.read()) == each
    cluster.succeed(resume.write([]))
    cluster.succeed(resume.write([]))
    assert cluster.succeed(resume.read()) == []
    assert PATH not in records(cluster.shared)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}x",
        b"7",
        b"[[1]]",
        b'[["b1", 1, null]]'[:-3],
        b'[[["b1"], 1, "x"]]',
        b"[null]",
        b'[[["b1"], 1e999, 2]]',
        b'[[["b1"], 1e30, 2]]',
        b"[" * 9999,
        b"[[[], -5, null]]",
    ],
)
def test_what_cant_be_read_is_nothing(data: bytes) -> None:
    """Whatever another version, or a person, wrote: the pass begins at the first ledger."""
    cluster = FakeCluster(3)
    cluster.succeed(cluster.store.records.folder("autorecovery/passes"))
    cluster.succeed(cluster.store.records.create(PATH, data))
    resume = Resume(cluster.store.records, "losses")
    assert cluster.succeed(resume.read()) == []
    cluster.succeed(resume.write([Stretch(("b1",), 5, None)]))
    assert cluster.succeed(resume.read()) == [Stretch(("b1",), 5, None)]


def test_a_store_that_is_away_keeps_nobody() -> None:
    """More is looked at again, then."""
    cluster = FakeCluster(3)
    cluster.store_fault = lambda _name, _arguments: AWAY
    cluster.succeed(Resume(cluster.store.records, "losses").write([Stretch(("b1",), 5, None)]))
