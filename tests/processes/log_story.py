"""
Stories about a log whose owners and publishers are processes: they are started, heard, hit, and judged by what they
were told beside what the log holds.
"""

import atexit
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from quire.client.api import connect
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.store.ledgers import log_of
from quire.log.store.paths import log_path
from quire.protocol.errors import LedgerError, NoSuchLedger
from tests.metadata.stories import Heard
from tests.reactor import reactor, run
from tests.stopped import stop

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parent.parent.parent
SESSION_MS = 2000
LEDGERS_MAX = 1_000_000  # of a cluster, in one list
LINE_S = 45.0  # only what hangs takes so long


class Nursery:
    """The process that all workers of this one are forked from, started with the first; it ends with this one."""

    def __init__(self):
        self._lock = threading.Lock()
        self._ours = None

    def ask(self, request, *files):
        """A job: the id of a new process with these files as input and output.  An id: the status of that one."""
        with self._lock:
            if self._ours is None:
                self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                number = theirs.detach()
                command = [sys.executable, "-m", "tests.processes.log_worker", str(number)]
                self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, pass_fds=[number])
                os.close(number)
                atexit.register(self._end)
            socket.send_fds(self._ours, [json.dumps(request).encode()], files)
            return json.loads(self._ours.recv(100))

    def _end(self):
        self._ours.close()
        self._process.wait(LINE_S)


NURSERY = Nursery()


class Worker:
    """A process (`tests.processes.log_worker`), and what it told: (time, words)."""

    def __init__(self, **job):
        self.job = job
        self.told = []
        self._news = threading.Condition()
        self._over = False
        theirs_in, stdin = os.pipe()
        stdout, theirs_out = os.pipe()
        self.pid = NURSERY.ask(job, theirs_in, theirs_out)
        os.close(theirs_in)
        os.close(theirs_out)
        self._stdin, self._stdout = os.fdopen(stdin, "wb", 0), os.fdopen(stdout, "rb")
        self._status = None
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def _hear(self):
        for line in self._stdout:
            if line.endswith(b"\n"):
                with self._news:
                    self.told.append((time.monotonic(), line.decode().split()))
                    self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()

    def until(self, word, times=1, since=0):
        """When it said so, for that time behind that line; it fails when the process ends without."""
        deadline = time.monotonic() + LINE_S
        with self._news:
            while True:
                while since < len(self.told):
                    at, words = self.told[since]
                    since += 1
                    times -= words[0] == word
                    if times == 0:
                        return at
                assert not self._over, f"{self.job} ended without {word!r}; it said {self.told[-3:]}"
                waited = self._news.wait(max(0.0, deadline - time.monotonic()))
                in_time = waited and time.monotonic() < deadline
                assert in_time, f"no {word!r} of {self.job}; it said {self.told[-3:]}"

    def more(self, word="acked", times=5):
        """The same from now on."""
        return self.until(word, times, len(self.told))

    def words(self, word):
        """All that it said with that word first."""
        return [words[1:] for _, words in self.told if words[0] == word]

    def command(self, *words):
        self._stdin.write((" ".join(words) + "\n").encode())

    def signal(self, number):
        os.kill(self.pid, number)

    def stop(self):
        """SIGSTOP, but not while it writes to a SQLite store: nobody else could until it goes on."""
        stop(self.pid)
        while self._is_writing():
            self.signal(signal.SIGCONT)
            stop(self.pid)

    def _is_writing(self):
        scheme, _, path = self.job["uri"].partition("://")
        if scheme != "sqlite":
            return False
        with closing(sqlite3.connect(path, timeout=2.0, isolation_level=None)) as store:
            try:
                store.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            store.execute("ROLLBACK")
        return False

    @property
    def alive(self):
        return self._thread.is_alive()

    def kill(self):
        """SIGKILL; when that was.  All that it told before is heard when this returns."""
        at = time.monotonic()
        self.signal(signal.SIGKILL)
        self.wait()
        return at

    def wait(self):
        """Until it has ended, and all that it told is heard; its status."""
        if self._status is None:
            self._thread.join(LINE_S)
            assert not self._thread.is_alive(), f"{self.job} does not end; it said {self.told[-3:]}"
            self._status = NURSERY.ask(self.pid)
        return self._status

    def end(self):
        if self._status is None:
            self.kill()
        self._stdin.close()
        self._stdout.close()


class Story:
    """
    One log on a cluster: the workers that use it, a handle of this process, and a reader that follows all the while.
    """

    def __init__(self, uri, name, **settings):
        self.uri, self.name = uri, name
        self.workers = []
        self.followed = []  # by index
        self._stack = ExitStack()
        self.logs = run(self._begin)
        self._stack.callback(lambda: run(self.logs.close))
        self.settings = {"roll_records": 150, **settings}

    async def _begin(self):
        client = await connect(reactor, self.uri, ClientOptions(session_timeout_ms=SESSION_MS))
        return Logs(client, LogOptions(poll_ms=200), owns_client=True)

    def __enter__(self):
        run(lambda: self.logs.create(self.name, **self.settings))
        run(self._follow)
        return self

    def __exit__(self, kind, error, trace):
        for worker in self.workers:
            worker.end()
        self._stack.close()

    async def _follow(self):
        """Also past times in which too few bookies are there to read from."""
        follower = await self.logs.read(self.name)

        async def follow():
            while True:
                with suppress(LedgerError):
                    async for batch in follower.tail(1e6):
                        assert batch.index == len(self.followed)
                        self.followed += batch.values
                    return
                await deferLater(reactor, 0.2)

        self.following = Deferred.fromCoroutine(follow())
        self.following.addErrback(self.followed.append)

    def worker(self, play="owner", **job):
        said = {"uri": self.uri, "log": self.name, "who": f"w{len(self.workers)}", "session_ms": SESSION_MS}
        worker = Worker(**said | {"play": play} | job)
        self.workers.append(worker)
        return worker

    async def path(self):
        """Of its manifest, beside which the claims are."""
        return log_path((await self.logs.info(self.name)).id)

    def claim_freed(self):
        """A function that waits until the owner's claim, which is there now, is free or another's; when that was."""

        async def watch():
            records, path, heard = self.logs.bk.store.records, f"{await self.path()}/owner", Heard()
            watch = records.watch(path, heard)
            token = json.loads((await heard.until(lambda found: found is not None)).value)["token"]

            async def other():
                await heard.until(lambda found: found is None or json.loads(found.value)["token"] != token)
                watch.cancel()
                return time.monotonic()

            return Deferred.fromCoroutine(other())

        freed = run(lambda: boxed(watch()))
        return lambda: run(lambda: freed[0])

    def hand_over(self, owner):
        """The owner hands the log over to the other candidate that there is."""

        async def token():
            path, heard, records = await self.path(), Heard(), self.logs.bk.store.records
            watch = records.watch_children(f"{path}/candidates", heard)
            names = await heard.until(lambda found: found is not None and len(found) == 2)
            watch.cancel()
            holder = json.loads((await records.read(f"{path}/owner")).value)["token"]
            return next(name for name in names if name != holder)

        owner.command("transfer", run(token))

    def told(self):
        """What all workers told."""
        return [words for worker in self.workers for _, words in worker.told]

    def values(self):
        """All that the log holds, in order; indexes are dense."""

        async def read():
            found = []
            async for batch in (await self.logs.read(self.name)).batches():
                assert batch.index == len(found)
                found += batch.values
            return found

        return run(read)

    def end_of_log(self):
        """Ends the log's open segment, as its next owner, so that all that is in it can be read."""

        async def settle():
            await (await self.logs.own(self.name)).close()

        run(settle)

    def tidied(self):
        """After a round of upkeep and a search for orphans its ledgers are those that it names, and all are there."""

        async def tidy():
            assert not (await self.logs.tidy(self.name)).stayed
            log = (await self.logs.info(self.name)).id
            orphans = [each async for each in self.logs.orphans(True, really=True, grace_s=0.0) if each.log == log]
            assert all(each.deleted for each in orphans)
            assert [each async for each in self.logs.check(self.name)] == []
            named = [segment.ledger async for segment in self.logs.segments(self.name)]
            named += [snapshot.ledger for snapshot in await self.logs.snapshots(self.name)]
            ledgers = await self.logs.bk.ledger_ids(-1, LEDGERS_MAX)
            there = {each for each in ledgers if await self._is_of(each, log)}
            print(f"{len(named)} segments and snapshots, {len(orphans)} orphans deleted")
            assert there == set(named), f"{there - set(named)} are left over, {set(named) - there} are missing"

        run(tidy)

    async def _is_of(self, ledger, log):
        with suppress(NoSuchLedger):
            return log_of(await self.logs.bk.metadata(ledger)) == log
        return False

    def judge(self):
        """What every owner was told is true, and the reader that followed saw what the log holds."""
        values = self.values()
        judge(values, self.told())
        followed = list(self.followed)
        assert followed == values[: len(followed)], f"a reader saw {followed[-1]}"
        return values


async def boxed(made):
    """In a list, so that what is awaited is not waited for."""
    return [await made]


def judge(values, told):
    """
    No record is twice in the log; those of one handle are in order, and none before one that is there is missing unless
    that was said; the epochs of the log never fall; an acknowledged record is at its index, one that failed is not
    there, unless its owner said that it does not know.  Published records (`p ...`) are no owner's.
    """
    where = {value: index for index, value in enumerate(values)}
    assert len(where) == len(values), "a record is twice in the log"
    following, epoch = {}, 0
    failed = {(words[1], int(words[2]) + n) for words in told if words[0] == "failed" for n in range(int(words[3]))}
    for index, value in enumerate(values):
        if value.startswith(b"p "):
            continue
        handle, of, number = value.decode().split()
        assert int(of) >= epoch, f"index {index} has a record of epoch {of} behind one of {epoch}"
        epoch = int(of)
        for missing in range(following.get(handle, 0), int(number)):
            assert (handle, missing) in failed, f"record {missing} of {handle} is not before record {number}"
        assert int(number) >= following.get(handle, 0), f"record {number} of {handle} is behind a later one"
        following[handle] = int(number) + 1
    epochs = {words[1]: words[2] for words in told if words[0] == "owner"}
    for words in told:
        if words[0] == "acked":
            handle, of, *numbers = words[1:]
            first, at, many = map(int, numbers)
            wanted = [f"{handle} {of} {n}".encode() for n in range(first, first + many)]
            assert values[at : at + many] == wanted, f"{words} is not true"
        elif words[0] == "failed" and words[4] != "AppendUnknown":
            handle, first, many = words[1], int(words[2]), int(words[3])
            there = [n for n in range(first, first + many) if f"{handle} {epochs[handle]} {n}".encode() in where]
            assert not there, f"{words}, and records {there} are in the log"
        elif words[0] == "over":
            handle, sent = words[1], int(words[2])
            answered = sum(
                int(other[5] if other[0] == "acked" else other[3])
                for other in told
                if other[0] in ("acked", "failed") and other[1] == handle
            )
            assert answered == sent, f"{handle} sent {sent} records and was told of {answered}"
