"""A run that is killed and started again goes on: what is copied twice is a small part of all."""

import os
from collections.abc import Sequence
from math import inf
from random import Random

import pytest
from twisted.internet.defer import Deferred

from quire.metadata.ledger import LedgerMetadata
from quire.metadata.memory.cluster import Fault
from quire.metadata.memory.store import MemoryStore
from quire.replication.lost_bookies import recover_bookies
from tests.client.fakes.cluster import FakeCluster, Request
from tests.metadata import stored
from tests.replication.stories import closed, is_whole, payload

# SPDX-License-Identifier: Apache-2.0

MOMENTS = int(os.environ.get("ROUNDS", "5"))
THREE = ["b0", "b1", "b2"]


class Scene:
    """
    Ledgers of one entry to fifteen that name a lost bookie, and what reaches the others of their copies.  A twentieth
    of them is worked on at a time: of so many and such sizes it holds less than a tenth of the bytes, whichever it is.
    """

    def __init__(self, seed: int, sizes: Sequence[int] = ()) -> None:
        dice = Random(seed)
        sizes = sizes or [dice.choice((0, 4, 9, 9, 14)) for _ in range(240)]
        self.cluster = FakeCluster(6, seed)
        self.cluster.kill("b1")
        self.ledgers = [closed(self.cluster, {0: THREE}, last) for last in sizes]
        self.bytes = 0
        self.cluster.judge = self._judge
        slow = Fault(before=0.004)
        self.cluster.store_fault = lambda _name, _arguments: slow

    def _judge(self, request: Request) -> str:
        if request.op == "recovery add":
            self.bytes += len(payload(request.entry))
        return "pass"

    def metadata(self, ledger: int) -> LedgerMetadata:
        return self.cluster.succeed(self.cluster.store.read_ledger(ledger)).value

    def whole_run(self) -> float:
        """How long one takes."""
        began = self.cluster.clock.seconds()
        assert self.cluster.succeed(recover_bookies(self.cluster.client(), ["b1"]), seconds=600).complete
        return self.cluster.clock.seconds() - began

    def killed_run(self, seconds: float, copied: float = inf) -> None:
        """
        One whose process ends after so long, or when so many bytes were copied, whatever it does; another one, with its
        own session, is next.
        """
        run = Deferred.fromCoroutine(recover_bookies(self.cluster.client(), ["b1"]))
        run.addErrback(lambda _: None)
        end = self.cluster.clock.seconds() + seconds
        while (left := end - self.cluster.clock.seconds()) > 0 and self.bytes < copied:
            self.cluster.spin(min(left, 0.001 if copied < inf else left))
        run.cancel()
        self.cluster.spin(1.0)
        stored.unlock(self.cluster.shared)
        self.cluster.store = MemoryStore(self.cluster.clock, self.cluster.shared)


def test_at_any_moment() -> None:
    """One of each part of a run: at most 1.1 times the bytes of a clean one, and every copy is there."""
    seed = int(os.environ.get("SEED", "0")) or Random().randrange(1, 1 << 30)
    print(f"SEED={seed}")
    clean = Scene(seed)
    length = clean.whole_run()
    assert clean.bytes
    dice = Random(seed)
    twice = 0
    for number in range(MOMENTS):
        scene = Scene(seed)
        scene.killed_run(length * (number + dice.random()) / MOMENTS)
        before = scene.bytes
        scene.whole_run()
        twice += 0 < before < scene.bytes
        assert scene.bytes <= 1.1 * clean.bytes, (before, scene.bytes, clean.bytes)
        client = scene.cluster.client()
        assert all(is_whole(scene.cluster, client, ledger) for ledger in scene.ledgers[::10])
    assert twice > MOMENTS / 4, "many of them were in the middle of copying"


def test_in_the_midst_of_a_large_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Again and again: what was named stays, so each run goes on where the one before was ended; all of it is one
    fragment in the end, on one bookie more.
    """
    monkeypatch.setattr("quire.replication.freeing.ledger.UNNAMED_BYTES_MAX", 4000)
    clean = Scene(1, [5999])
    length = clean.whole_run()
    scene = Scene(1, [5999])
    for part in (0.2, 0.5, 0.7):
        scene.killed_run(length, part * clean.bytes)
        assert scene.bytes < (part + 0.2) * clean.bytes
        assert len(scene.metadata(scene.ledgers[0]).fragments) == 2, "done and to do"
    scene.whole_run()
    assert scene.bytes <= 1.1 * clean.bytes
    metadata = scene.metadata(scene.ledgers[0])
    assert len(metadata.fragments) == 1
    assert is_whole(scene.cluster, scene.cluster.client(), scene.ledgers[0])
