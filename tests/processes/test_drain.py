"""A bookie is emptied while writers write to it and readers read from it: real processes, and nobody notices."""

import json
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from quire.client import Client, connect
from quire.metadata.ledger import LedgerState
from quire.tools.local_cluster.cluster import LocalCluster, Store
from tests.tools.command import COMMAND, environment, ok, quire, refused
from tests.tools.conftest import SMALL

# SPDX-License-Identifier: Apache-2.0

WAIT_S = 120.0
BATCH = 20


def payload(number: int) -> bytes:
    return b"entry %d" % number


class Busy:
    """A user in a thread with a client of its own, who does something again and again until it is told to stop."""

    def __init__(self, uri: str, turn: Callable[[Client, int], None]) -> None:
        self.turns = 0
        self.error: BaseException | None = None
        self._uri, self._turn = uri, turn
        self._moved = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with connect(self._uri) as client:
                while not self._over.is_set():
                    self._turn(client, self.turns)
                    with self._moved:
                        self.turns += 1
                        self._moved.notify_all()
        except BaseException as error:
            with self._moved:
                self.error = error
                self._moved.notify_all()

    def go_on(self, turns: int = 3) -> None:
        """Returns when it has done so many more turns; raises what went wrong."""
        with self._moved:
            wanted = self.turns + turns
            assert self._moved.wait_for(lambda: self.turns >= wanted or self.error is not None, WAIT_S), "it hangs"
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self._over.set()
        self._thread.join(WAIT_S)
        if self.error is not None:
            raise self.error


class Drain:
    """`quire decommission --drain` as a process, whose events are read as they come."""

    def __init__(self, bookie: str, uri: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, "decommission", "--drain", bookie, "--json"],
            env=environment(uri),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._killer = threading.Timer(WAIT_S, self._process.kill)
        self._killer.start()

    def waits_for(self) -> set[int]:
        """The ledgers that the next event names, whose writers are waited for."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            told = json.loads(line)
            if told["event"] == "waiting":
                return {each["ledger"] for each in told["ledgers"] if each["open"]}
        raise AssertionError(f"it ended with {self._process.wait()} and waited for nobody")

    def kill(self) -> None:
        self._process.kill()
        self.ended()

    def ended(self) -> tuple[int, str, str]:
        out, errors = self._process.communicate()
        self._killer.cancel()
        return self._process.returncode, out, errors


@pytest.mark.parametrize("kind", ["sqlite", "zookeeper"])
def test_nobody_notices_that_a_bookie_is_emptied(tmp_path: Path, kind: Store) -> None:
    """
    No append and no read fails while it is, though the drain is killed and begun again and the bookie is restarted
    meanwhile; the idle writer of an open ledger is waited for by name and is not fenced; in the end no ledger names the
    bookie, and once it is stopped it goes.
    """
    with LocalCluster(tmp_path / "cluster", 5, kind, options=SMALL, tick_ms=250) as cluster, connect(cluster.uri) as bk:
        uri = cluster.uri
        closed = []
        for shape in [(3, 3, 2), (4, 2, 2), (1, 1, 1), (1, 1, 1), (1, 1, 1), (3, 3, 3)] * 3:
            with bk.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2]) as writer:
                writer.append_many([payload(number) for number in range(300)])
                closed.append(writer.id)
        idle = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        idle.append_many([payload(number) for number in range(10)])
        bookie = bk.metadata(idle.id).last_fragment.bookies[0]
        busy = bk.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=3)

        def append(_client: Client, turn: int) -> None:
            busy.append_many([payload(turn * BATCH + number) for number in range(BATCH)])

        def read(client: Client, turn: int) -> None:
            with client.open_ledger(closed[turn % len(closed)], recover=False) as reader:
                assert [entry.data for entry in reader] == [payload(number) for number in range(300)]

        users = [Busy(uri, append), Busy(uri, read), Busy(uri, read)]
        try:
            first = Drain(bookie, uri)
            assert first.waits_for() == {idle.id}
            for user in users:
                user.go_on()
            first.kill()

            assert "registered" in refused(1, "decommission", bookie, metadata=uri)
            state = {row["bookie"]: row["state"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
            assert state[bookie] == "read-only", "the order outlives who gave it"
            cluster.kill(bookie)
            for user in users[:1]:
                user.go_on()  # the writer is elsewhere already
            cluster.restart(bookie)
            state = {row["bookie"]: row["state"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
            assert state[bookie] == "read-only", "and a restart of the bookie"
            assert ok("bookie", "readonly", bookie, "off", "--json", metadata=uri).document["read_only"]

            second = Drain(bookie, uri)
            assert second.waits_for() == {idle.id}
            assert bk.metadata(idle.id).state is LedgerState.OPEN
            while bookie in bk.metadata(idle.id).last_fragment.bookies:
                idle.append(b"one more")  # the first one may be confirmed before it is refused
            code, out, errors = second.ended()
            assert code == 0, errors
            assert idle.id in json.loads(out)["ledgers"]
            assert json.loads(out)["ledgers_fenced"] == 0
            for user in users:
                user.go_on(2 * len(closed))
        finally:
            for user in users:
                user.stop()
        idle.close()
        busy.close()
        assert not [ledger for ledger in bk.ledgers() if bookie in bk.metadata(ledger).bookies()]
        ok("ledger", "check", *closed, idle.id, busy.id, metadata=uri)
        with bk.open_ledger(busy.id) as reader:
            entries = [entry.data for entry in reader]
        assert entries == [payload(number) for number in range(len(entries))]
        assert len(entries) >= users[0].turns * BATCH

        cluster.kill(bookie)
        done = quire("decommission", bookie, metadata=uri)
        while done.code and "is registered" in done.err:  # its session has to end; each try is a process
            done = quire("decommission", bookie, metadata=uri)
        assert done.code == 0, done.err
        assert bookie not in {row["bookie"] for row in ok("bookie", "list", "--json", metadata=uri).rows}
