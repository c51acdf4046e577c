"""
SIGKILL under load, while indexes are rebuilt: what a storage acknowledged is there in its next life, entry by entry,
and the fence holds.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

# SPDX-License-Identifier: Apache-2.0

APPENDER = """
import sys
from twisted.internet import reactor
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.rebuild import Upkeep
from quire.protocol.errors import Status
from tests.bookie.fakes.disk import KEY, Events, LimboOf, options_of, run_of

options = options_of(sys.argv[1], journals=2, ledgers=2, flush_interval_ms=20, compaction_bytes_per_second=0)
storage = Storage(options, reactor)
following = [int(text) for text in sys.argv[2].split(",")]
waiting = []

def durable(tokens):
    sys.stdout.write("".join(token + "\\n" for token in tokens))
    sys.stdout.flush()
    for _ in tokens:
        push()

def push():
    ledger = sum(following) % 3
    first = following[ledger]
    status = storage.add(run_of(ledger, first, 7, size=300, v3=first % 2 == 1), f"{ledger} {first}")
    if status is None:
        waiting.append(1)
    else:
        assert status is Status.EOK, status
        following[ledger] += 7

def relieved():
    while waiting:
        waiting.pop()
        push()

storage.listen(Events(durable, relieved))
storage.start()
upkeep = Upkeep(storage, reactor, LimboOf(storage))
storage.fence(9, KEY, "fenced 9")

def index_anew():
    upkeep.rebuild.start()
    reactor.callLater(0.01, index_anew)

index_anew()
for _ in range(50):
    push()
reactor.run(installSignalHandlers=False)
"""


def rounds(tmp_path: Path, count: int) -> None:
    """
    So many lives of one bookie's storage, each ended by SIGKILL under load, each checked by a life of its own: what is
    new, at the end all.
    """
    acknowledged: dict[int, int] = {0: 0, 1: 0, 2: 0}
    for life in range(count):
        following = ",".join(str(acknowledged[ledger]) for ledger in range(3))
        process = subprocess.Popen(
            [sys.executable, "-c", APPENDER, str(tmp_path), following],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line.split())
            if len(lines) >= 300 + 97 * (life % 7):
                break
        process.send_signal(signal.SIGKILL)
        lines += [line.split() for line in process.stdout if line.endswith("\n")]
        process.wait()
        assert ["fenced", "9"] in lines
        for ledger, first in (line for line in lines if line[0] != "fenced"):
            acknowledged[int(ledger)] = max(acknowledged[int(ledger)], int(first) + 7)
        check = subprocess.run(
            [sys.executable, "-c", CHECKER, str(tmp_path), "0,0,0" if life == count - 1 else following],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            check=True,
        )
        *ledgers, fence = check.stdout.split()
        assert fence == "EFENCED"
        for ledger, found in enumerate(ledgers):
            assert int(found) >= acknowledged[ledger], (
                f"life {life}: ledger {ledger} has {found} of {acknowledged[ledger]} acknowledged entries"
            )


CHECKER = """
import sys
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from quire.bookie.storage.storage import Storage
from tests.bookie.fakes.disk import body_of, options_of, run_of

storage = Storage(options_of(sys.argv[1], journals=2, ledgers=2), reactor)
storage.start()

async def check():
    for ledger, entry in enumerate(int(text) for text in sys.argv[2].split(",")):
        while True:
            bodies = storage.read_run(ledger, entry, 500, 1 << 20)
            bodies = await bodies if isinstance(bodies, Deferred) else bodies
            if not isinstance(bodies, list):
                break
            assert bodies == [body_of(ledger, entry + i, 300) for i in range(len(bodies))]
            entry += len(bodies)
        print(entry)
    print(storage.add(run_of(9, 0), "x").name)
    await storage.close()

Deferred.fromCoroutine(check()).addErrback(lambda failure: failure.printTraceback()).addBoth(lambda _: reactor.stop())
reactor.run(installSignalHandlers=False)
"""


def test_kill_9_while_appending(tmp_path: Path) -> None:
    """A real process appends and prints what was acknowledged; after each SIGKILL all of that is there."""
    rounds(tmp_path, 3)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kill_9_two_hundred_times(tmp_path: Path) -> None:
    """The same two hundred times, on the same directories."""
    rounds(tmp_path, 200)
