"""
Two Apache bookies and one of ours in one cluster: each is killed in turn, and no entry is lost.

Ensemble, write quorum 3, ack quorum 2 and no spare: with one bookie dead the writer goes on with two (D17), and when
the dead one is back, everything is read from each of the three.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tests.interop import peer
from tests.interop.ours import TEXT, Bookies, Ours, lines, sha256, wait_for_bookies

TEXT_LINES = lines()


@dataclass
class Mixed:
    """The cluster, and how to kill and restart each of its bookies."""

    metadata: str
    java: peer.JavaClient
    kill: dict[str, Callable[[], None]]
    restart: dict[str, Callable[[], None]]
    dead: set[str] = field(default_factory=set)

    def end(self, bookie: str) -> None:
        """SIGKILL."""
        self.kill[bookie]()
        self.dead.add(bookie)

    def revive(self) -> None:
        """All that are dead run again, registered by a session of their own: the one before has to expire first."""
        wait_for_bookies(self.java, 3 - len(self.dead))
        for bookie in self.dead:
            self.restart[bookie]()
        self.dead.clear()
        wait_for_bookies(self.java, 3)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    with (
        peer.Cluster(bookies=2) as apache,
        Bookies(tmp_path_factory.mktemp("bookies"), apache.metadata, 1) as own,
        apache.client(password="secret", timeout=5, delay_ensemble_change="yes") as java,
    ):
        kill: dict[str, Callable[[], None]] = {bookie.id: bookie.kill for bookie in apache.bookies}
        restart: dict[str, Callable[[], None]] = {bookie.id: bookie.restart for bookie in apache.bookies}
        kill |= {bookie: (lambda name=bookie: own.kill(name)) for bookie in own.ids}
        restart |= {bookie: (lambda name=bookie: own.restart(name)) for bookie in own.ids}
        yield Mixed(apache.metadata, java, kill, restart)


@pytest.fixture(autouse=True)
def _all_alive(mixed: Mixed) -> None:
    """Whatever an earlier test left dead runs again."""
    mixed.revive()


def test_our_writer_lives_through_the_kill_of_each(mixed: Mixed) -> None:
    """One ledger, three deaths, each bookie back before the next goes; both clients read all of it."""
    with Ours(mixed.metadata) as ours:
        writer = ours.create(password=b"secret")
        step = len(TEXT_LINES) // 6
        parts = [TEXT_LINES[start : start + step] for start in range(0, len(TEXT_LINES), step)]
        ours.append(writer, parts.pop(0))
        for bookie in mixed.kill:
            mixed.end(bookie)
            ours.append(writer, parts.pop(0))
            assert writer.bookies_out == (bookie,)
            mixed.revive()
            ours.until(f"the writer takes {bookie} back", lambda: not writer.bookies_out)
        for part in parts:
            ours.append(writer, part)
        ours.finish(writer)
        assert writer.ensemble_changes == 0, "there was no spare"
        assert sha256(ours.read(writer.id, b"secret")) == sha256(TEXT_LINES)
    assert mixed.java.call("read", ledger=writer.id)["sha256"] == sha256(TEXT_LINES)


@pytest.mark.parametrize("protocol", ["v2", "v3"])
def test_a_java_writer_lives_through_the_kill_of_each(mixed: Mixed, protocol: str) -> None:
    """The same by Java, configured to keep its ensemble while two of three answer: one ledger for each death."""
    for bookie in mixed.kill:
        ledger = mixed.java.call("create", protocol=protocol)["ledger"]
        mixed.java.call("append", ledger=ledger, file=TEXT, to=1000, protocol=protocol)
        mixed.end(bookie)
        done = mixed.java.call("append", ledger=ledger, file=TEXT, **{"from": 1000, "to": 2000}, protocol=protocol)
        assert (bookie, done["failed"], done["code"], done["last"]) == (bookie, 0, 0, 1999)
        mixed.java.call("close", ledger=ledger)
        with Ours(mixed.metadata) as ours:
            assert sha256(ours.read(ledger, b"secret")) == sha256(TEXT_LINES[:2000])
        mixed.revive()


def test_each_bookie_alone_gives_back_what_it_acknowledged(mixed: Mixed) -> None:
    """A closed ledger of write quorum 3, written with all alive, is read while any two of the three are dead."""
    written = mixed.java.call("lines", file=TEXT, ack=3)
    assert written["failed"] == 0
    ledger = written["ledger"]
    with Ours(mixed.metadata) as ours:
        for alive in mixed.kill:
            for bookie in mixed.kill:
                if bookie != alive:
                    mixed.end(bookie)
            assert sha256(ours.read(ledger, b"secret", recover=False)) == sha256(TEXT_LINES)
            mixed.revive()
