"""Ids from 128 counters, as Apache's driver for etcd draws them, on a tree in memory."""

from collections import Counter
from random import Random
from types import SimpleNamespace

import pytest

from quire.metadata.ledgers.buckets import BITS, BUCKETS_MAX, COUNT_MAX, PASSED_MAX, TOGETHER, BucketIds, rounds
from quire.metadata.position import Position
from quire.metadata.store import ANY, NoCluster
from quire.metadata.tree import Check, Create, Done, NodeExists, NoNode, Step
from quire.protocol.errors import LedgerIdOverflow, MetaStore
from tests.metadata.ledgers.test_ids import now

# SPDX-License-Identifier: Apache-2.0


class Pretended:
    """Nodes with their versions: what the generator asks of a tree."""

    uri = "etcd+apache://pretended/r"

    def __init__(self) -> None:
        self.nodes = {"/r": 0, "/r/INSTANCEID": 0, "/r/buckets": 0}
        self.together: list[int] = []  # counters of each transaction

    async def transact(self, steps: list[Step]) -> list[Done]:
        check, *puts = steps
        assert check == Check("/r/INSTANCEID")
        if check.path not in self.nodes:
            raise NoNode(check.path)
        self.together.append(len(puts))
        for number, step in enumerate(puts, 1):
            if isinstance(step, Create) == (step.path in self.nodes):
                error = NodeExists(step.path) if isinstance(step, Create) else NoNode(step.path)
                error.step = number
                raise error
        for step in puts:
            self.nodes[step.path] = self.nodes.get(step.path, -1) + 1
        return [Done(check.path, ANY), *(Done(step.path, self.nodes[step.path]) for step in puts)]

    async def exists(self, path: str) -> object | None:
        return SimpleNamespace() if path in self.nodes else None

    async def get_each(self, paths: list[str]) -> list[tuple[bytes, SimpleNamespace] | None]:
        return [(b"", SimpleNamespace(version=self.nodes[path])) if path in self.nodes else None for path in paths]


def generator(tree: Pretended, seed: int = 1) -> BucketIds:
    return BucketIds(tree, "/r", Random(seed))  # type: ignore[arg-type]  # pretended


def test_ids_go_round_the_counters() -> None:
    """Each counter begins at 1, and has the upper byte for itself, as Apache's ids have it; no id comes twice."""
    tree = Pretended()
    ids = [now(generator(tree, seed).next()) for seed in range(3)]
    mine = generator(tree)
    ids += [now(mine.next()) for _ in range(2 * BUCKETS_MAX)]
    assert len(set(ids)) == len(ids)
    assert {each >> BITS for each in ids} == set(range(BUCKETS_MAX))
    assert min(each & COUNT_MAX for each in ids) == 1
    position = now(mine.position())
    assert max(position) == max(ids) + 1
    assert all(map(position.gave, ids))
    assert position.beyond(sorted(each + 1 for each in ids)) == list(position)
    ledger, block = now(mine.take())
    assert (block.token, block.next) == ("/r/INSTANCEID", ledger)


def test_a_counter_that_is_full_is_passed_over() -> None:
    """Until all are."""
    tree = Pretended()
    tree.nodes |= {f"/r/buckets/{bucket:03d}": COUNT_MAX - 1 for bucket in range(BUCKETS_MAX)}
    tree.nodes["/r/buckets/007"] = 4
    assert [now(generator(tree).next()) for _ in range(2)] == [7 << BITS | 6, 7 << BITS | 7]
    tree.nodes["/r/buckets/007"] = COUNT_MAX - 1
    with pytest.raises(LedgerIdOverflow):
        now(generator(tree).next())


def test_no_cluster() -> None:
    """Nothing is drawn where there is none any more."""
    tree = Pretended()
    del tree.nodes["/r/INSTANCEID"]
    for story in (generator(tree).next(), generator(tree).position()):
        with pytest.raises(NoCluster):
            now(story)


def test_each_counter_is_raised_by_puts() -> None:
    """To what the position has of it, in transactions that etcd takes; those that are further stay; a number is one."""
    tree = Pretended()
    ids = generator(tree)
    drawn = [now(ids.next()) for _ in range(3)]
    other = Pretended()
    seen = now(ids.position()).behind([9, 7 << BITS | 5])
    now(generator(other).next())
    now(generator(other).raise_to(seen))
    assert now(generator(other).position()) == seen
    assert other.nodes["/r/buckets/000"] + 1 == 9
    assert now(generator(other, 2).next()) not in drawn
    again = dict(other.nodes)
    now(generator(other).raise_to(Position([5])))
    assert other.nodes == again
    now(generator(other).raise_to(Position([12])))
    assert other.nodes == again | {"/r/buckets/000": 10}
    assert [now(generator(tree).raise_to(given)) for given in (seen, Position([0]))] == [None, None]
    assert max(other.together) <= TOGETHER


def test_many_ids_are_not_passed_over_one_by_one() -> None:
    """It would take hours; the refusal says how many."""
    with pytest.raises(MetaStore, match="too many to pass over"):
        now(generator(Pretended()).raise_to(Position([PASSED_MAX + 2])))


def test_counters_are_put_together_as_often_as_each_is_to_be() -> None:
    """No counter twice in one transaction."""
    missing = {str(bucket): 1 + bucket % 3 for bucket in range(100)}
    puts = list(rounds(missing))
    assert Counter(path for paths in puts for path in paths) == missing
    assert all(len(set(paths)) == len(paths) <= TOGETHER for paths in puts)
    assert len(puts) == 2 + 2 + 1
