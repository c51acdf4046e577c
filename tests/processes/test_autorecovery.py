"""AutoRecovery as processes beside real bookies and a real ZooKeeper, while these are restarted, stopped and lost."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quire.client.api import Client, connect
from quire.metadata.auditing import Periodic
from quire.replication.checker import check_ledger
from quire.tools.local_cluster.cluster import READY_S, STOP_S, LocalCluster, LocalRecovery
from quire.tools.local_cluster.zookeeper import ZooKeeper
from tests import stopped
from tests.reactor import reactor, run
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("OUTAGES", "2"))  # of ZooKeeper; ten once, before a release
SESSION_S = 2.0
WAIT_S = 120.0


class Scene:
    """Five bookies with a ZooKeeper, two processes of AutoRecovery, and a client on the tests' reactor."""

    def __init__(self, directory: Path, session_s: float, **keys: object) -> None:
        tick_ms = int(session_s * 1000 / 4)
        options = SMALL | {"zkTimeout": str(int(session_s * 1000))}
        self.cluster = LocalCluster(directory, 5, "zookeeper", options=options, tick_ms=tick_ms)
        self.cluster.start()
        self.keys = {key: str(value) for key, value in keys.items()} | {"zkTimeout": options["zkTimeout"]}
        self.healers = [LocalRecovery(directory / f"healer{number}") for number in range(2)]
        for number, healer in enumerate(self.healers):
            healer.write_conf(self.cluster.uri, {**self.keys, "bookieId": f"healer{number}"})
            healer.begin()
            healer.ready(time.monotonic() + READY_S)
        self.client: Client = run(lambda: connect(reactor, self.cluster.uri))

    def close(self) -> None:
        run(self.client.close)
        for healer in self.healers:
            healer.ask_to_end()
        for healer in self.healers:
            healer.wait_for_end(time.monotonic() + STOP_S)
        self.cluster.stop()

    def ledger(self) -> int:
        """Of ten entries, closed."""

        async def story() -> int:
            writer = await self.client.create_ledger()
            await writer.append_many([b"entry %d" % number for number in range(10)])
            await writer.close()
            return writer.id

        return run(story)

    def ask(self, story: Callable[[], Any]) -> Any:
        async def told() -> Any:
            return await story()

        return run(told)

    def short(self) -> list[int]:
        return [each.ledger for each in self.ask(self.client.store.repairs.shortages)]

    def versions(self, ledgers: list[int]) -> list[int]:
        return [self.ask(lambda ledger=ledger: self.client.store.read_ledger(ledger)).version for ledger in ledgers]

    def named(self, ledger: int) -> set[str]:
        return set(self.ask(lambda: self.client.metadata(ledger)).bookies())

    def checks_done(self) -> int | None:
        return self.ask(lambda: self.client.store.auditing.checked(Periodic.COPIES))

    def said(self) -> str:
        return "".join(healer.log.read_text(errors="replace") for healer in self.healers)

    def wait(self, what: str, true: Callable[[], object], seconds: float = WAIT_S) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, f"after {seconds:g} s not yet: {what}\n{self.said()[-3000:]}"

    def hold(self, seconds: float, look: Callable[[], object]) -> None:
        """That much time passes, while something is looked at."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            look()


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[Callable[..., Scene]]:
    made: list[Scene] = []

    def make(session_s: float = SESSION_S, **keys: object) -> Scene:
        made.append(Scene(tmp_path / "cluster", session_s, **keys))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


def test_a_rolling_restart_marks_nothing(scenes: Callable[..., Scene]) -> None:
    """Each bookie goes and comes back within the delay while checks of all copies are due: no byte is copied."""
    scene = scenes(lostBookieRecoveryDelay=600, auditorPeriodicCheckInterval=1)
    ledgers = [scene.ledger() for _ in range(10)]
    before = scene.versions(ledgers)
    for bookie in scene.cluster.ids:
        scene.cluster.kill(bookie)
        gone = time.monotonic()
        scene.wait(
            "the store noticed", lambda bookie=bookie: scene.ask(scene.client.store.bookies).find(bookie) is None
        )
        checked = scene.checks_done()
        scene.wait("a check while it is away", lambda checked=checked: scene.checks_done() != checked, 60)
        assert scene.short() == [], time.monotonic() - gone
        scene.cluster.restart(bookie)
    checked = scene.checks_done()
    scene.wait("one more check", lambda: scene.checks_done() != checked, 60)
    assert scene.short() == []
    assert scene.versions(ledgers) == before
    assert "were marked" not in scene.said()


def test_a_bookie_that_stands_still_marks_nothing(scenes: Callable[..., Scene]) -> None:
    """SIGSTOP for five seconds, without any delay, while checks of all copies are due."""
    scene = scenes(session_s=10.0, auditorPeriodicCheckInterval=1)
    ledgers = [scene.ledger() for _ in range(10)]
    before = scene.versions(ledgers)
    pid = scene.cluster.bookies[0].pid
    assert pid is not None
    stopped.stop(pid)
    try:
        scene.hold(5.0, lambda: scene.short() == [] or pytest.fail("a ledger is marked"))
    finally:
        os.kill(pid, signal.SIGCONT)
    checked = scene.checks_done()
    scene.wait("one more check", lambda: scene.checks_done() != checked, 60)
    assert scene.short() == []
    assert scene.versions(ledgers) == before


def test_a_lost_bookie_is_made_good_though_zookeeper_went(scenes: Callable[..., Scene]) -> None:
    """
    ZooKeeper is away for three session time-outs, killed or standing still, time and again: no process ends or idles,
    a mark made afterwards is taken within ten seconds, and in the end a bookie that is lost is made good.
    """
    scene = scenes()
    ledgers = [scene.ledger() for _ in range(10)]
    for number in range(ROUNDS):
        zookeeper = scene.cluster.server
        assert zookeeper is not None
        if number % 2:
            stopped.stop(zookeeper.pid)
            scene.hold(3 * SESSION_S, os.sched_yield)
            os.kill(zookeeper.pid, signal.SIGCONT)
        else:
            zookeeper.stop()
            scene.hold(3 * SESSION_S, os.sched_yield)
            scene.cluster.server = ZooKeeper(zookeeper.directory, zookeeper.port, tick_ms=int(SESSION_S * 1000 / 4))
        scene.wait("the store answers", lambda: answers(scene), 60)
        for bookie in scene.cluster.bookies:
            if bookie.process is not None and bookie.process.poll() is not None:
                bookie.end_now()
                scene.cluster.restart(bookie.id)
        scene.wait("all bookies are back", lambda: len(scene.ask(scene.client.store.bookies).writable) == 5, 60)
        bookie = next(iter(scene.named(ledgers[0])))
        scene.ask(lambda bookie=bookie: scene.client.store.repairs.mark(ledgers[0], [bookie], None))
        scene.wait("a mark is taken and found to be good", lambda: not scene.short(), 10)
        assert [healer.process.poll() for healer in scene.healers if healer.process is not None] == [None, None]
    lost = scene.cluster.ids[0]
    named = [ledger for ledger in ledgers if lost in scene.named(ledger)]
    scene.cluster.kill(lost)
    scene.wait("it is replaced", lambda: not any(lost in scene.named(ledger) for ledger in named), 60)
    scene.wait("the queue is empty", lambda: not scene.short(), 30)
    for ledger in named:
        assert scene.ask(lambda ledger=ledger: check_ledger(scene.client, ledger)).complete


def answers(scene: Scene) -> bool:
    """Whether the store does."""
    try:
        scene.ask(scene.client.store.bookies)
    except Exception:  # whatever it says meanwhile
        return False
    return True
