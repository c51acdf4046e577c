"""
The register of docs/examples as processes, on real bookies: they are killed again and again, whoever leads, and what
their clients were told is linearizable.  `ROUNDS=50` in the environment kills so many.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from random import Random

import pytest

from tests.linear import NEVER, Call, first_broken
from tests.log.machine.test_examples import EXAMPLES
from tests.tools.command import environment, ok

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "3"))
NAMES = (f"register{number}" for number in count())
PROCESSES, CLIENTS, KEYS = 3, 5, ("a", "b")
SOME = 25  # calls that were answered, from a kill to the next one
LINES_MAX = 100
WAIT_S = 120.0  # only what hangs takes so long
GONE = {"error": "it was killed"}


class Register:
    """One process; several clients ask it at once, and are answered in order."""

    def __init__(self, uri, log, me):
        self.me = me
        self._lock = threading.Lock()
        self._waiting = deque()
        self._over = False
        command = [sys.executable, str(EXAMPLES / "register.py"), uri, log, me]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self):
        for line in self.process.stdout:
            if line.endswith("\n") and "ready" not in (found := json.loads(line)):
                self._waiting.popleft().put(found)
        with self._lock:
            self._over = True
            for each in self._waiting:
                each.put(GONE)

    def ask(self, line):
        """Its answer; `GONE` when it ended without one; None when it had ended before."""
        answer = SimpleQueue()
        with self._lock:
            if self._over:
                return None
            self._waiting.append(answer)
            with suppress(OSError):  # it is being killed: all who wait are told
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
        return answer.get(timeout=WAIT_S)

    def kill(self):
        self.process.kill()
        self._thread.join(WAIT_S)
        self.process.wait(WAIT_S)
        self.process.stdout.close()
        with suppress(BrokenPipeError):  # what was not written to it is lost
            self.process.stdin.close()


class History:
    """Clients in threads, each with one call at a time, and what they were told."""

    def __init__(self, uri):
        self.uri, self.log = uri, next(NAMES)
        ok("log", "create", self.log, metadata=uri)
        self.calls = []
        self.answered = {}  # calls of each process
        self._news = threading.Condition()
        self._over = False
        self._names = (f"p{number}" for number in count())
        self.running = [self.started() for _ in range(PROCESSES)]
        self._clients = [threading.Thread(target=self._client, args=(n,), daemon=True) for n in range(CLIENTS)]
        for each in self._clients:
            each.start()

    def started(self):
        return Register(self.uri, self.log, next(self._names))

    def _client(self, number):
        rng, asked = Random(number), None
        for turn in count():
            if self._over:
                return
            key, mine = rng.choice(KEYS), f"v{number}.{turn}"
            what = rng.choice(("get", "get", "put", "cas"))
            newest = [call.what[-1] for call in self.calls[-9:] if call.key == key and len(call.what) > 1]
            expected = rng.choice(newest or ["-"])
            line = {"get": f"get {key}", "put": f"put {key} {mine}", "cas": f"cas {key} {expected} {mine}"}[what]
            if asked is None or rng.random() < 0.3:  # others than the one that leads must not answer
                asked = rng.choice(self.running)
            begun = time.monotonic()
            found = asked.ask(line)
            self._told(what, key, expected, mine, begun, found, asked)
            asked = asked if found is not None and not {"ask", "error"} & found.keys() else None

    def _told(self, what, key, expected, mine, begun, found, asked):
        """An answer that another one is to be asked says that nothing was done; an error does not say that."""
        if found is None or "ask" in found:
            return
        end = NEVER if "error" in found else time.monotonic()
        if what == "get":
            if end == NEVER:
                return
            call = Call(begun, end, key, ("read",), found["value"])
        elif what == "put":
            call = Call(begun, end, key, ("write", mine), None)
        else:
            swap = "swap", None if expected == "-" else expected, mine
            call = Call(begun, end, key, swap, found.get("done"))
        with self._news:
            self.calls.append(call)
            if end < NEVER:
                self.answered[asked.me] = self.answered.get(asked.me, 0) + 1
            self._news.notify_all()

    def more(self):
        """So many calls more are answered; by whom the last ones were."""
        with self._news:
            wanted = sum(self.answered.values()) + SOME
            before = dict(self.answered)
            assert self._news.wait_for(lambda: sum(self.answered.values()) >= wanted, WAIT_S), "nobody answers"
            return max(self.answered, key=lambda me: self.answered[me] - before.get(me, 0))

    def all_kinds(self):
        """Whether a swap was done, and reads had several answers."""
        with self._news:
            swapped = [call for call in self.calls if call.what[0] == "swap" and call.answer is True]
            return swapped and len({call.answer for call in self.calls if call.what[0] == "read"}) > 2

    def end(self):
        self._over = True
        for each in self._clients:
            each.join(WAIT_S)
            assert not each.is_alive()
        for each in self.running:
            each.kill()


@pytest.mark.parametrize("cluster", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.long)], indirect=True)
@pytest.mark.timeout(300 + 30 * ROUNDS)
def test_the_register_survives_kills(cluster):
    """Of the one that leads, and now and then of another one."""
    history, rng = History(cluster.uri), Random(ROUNDS)
    try:
        for number in range(ROUNDS):
            leader = history.more()
            living = {each.me: each for each in history.running}
            hit = living[leader] if number % 4 != 3 else rng.choice(history.running)
            history.running.remove(hit)
            hit.kill()
            history.running.append(history.started())
        history.more()
        while not history.all_kinds():
            history.more()
    finally:
        history.end()
    calls = history.calls
    unknown = sum(call.end == NEVER for call in calls)
    print(f"{ROUNDS} kills, {len(calls)} calls, {unknown} without an answer")
    assert first_broken(calls) is None


def test_the_example_is_short():
    """It is read in a minute."""
    assert len((EXAMPLES / "register.py").read_text(encoding="utf-8").splitlines()) <= LINES_MAX
