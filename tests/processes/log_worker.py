"""
A process that owns a log, or publishes to it, and tells each answer that it gets; a test kills, stops or commands it.

    python -m tests.processes.log_worker FD        # a Unix socket: {"uri": URI, "log": NAME, "play": "owner", ...}

It is forked from one that has all of its modules, for each job that comes on the socket with its standard input and
output (`serve`).

A record's value is `<handle> <epoch> <number>`; the handle is `<who>.<turn>`, and its numbers count from 0.  One line
is told for each batch, after its answer and in one write, so a line that was seen whole is an answer that was given:

    candidate                                            it waits for the claim, or takes it
    owner <handle> <epoch> <end of the log>
    acked <handle> <epoch> <number> <index> <count>      those records are at those indexes
    failed <handle> <number> <count> <error>
    over <handle> <records sent>                         the handle has ended, every record of it was answered
    ready                                                `many` has come to its end
    ended <error> <text>
    half, part <number> <as text>                        of a task: it has written half of a part; the whole part
    receipt <batch> <first> <end> <again>, aborted <batch>       of a driver
    acks <indexes>, stored                               of a consumer: it is about to acknowledge them; all are stored

`die_at`, `stop_at`, `raise_at`, `nth`: it kills or stops itself, or raises, when it comes to that step for that time;
before it stops it tells `stopped`.  It ends with its standard input, on which it takes the commands `roll`, `close` and
`transfer <token>`, and of a replica (`log_replicas`, which says what it tells) `read <mode> <key>`.
"""

import gc
import json
import os
import pickle
import signal
import socket
import sys
import threading
from base64 import b64decode, b64encode
from contextlib import suppress
from importlib import import_module
from itertools import count
from random import Random

from twisted.internet.defer import Deferred, gatherResults

from quire.client.api import connect
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogFenced, NotOwner
from tests.processes.log_replicas import Standing
from tests.processes.store_masters import Master

# SPDX-License-Identifier: Apache-2.0

PAUSE_S = 0.002  # between an answer and the next batch
UNDER_WAY_MAX = 4  # batches


def tell(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def hurt(what):
    """This process."""
    if what == "die_at":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop_at":
        tell("stopped")
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise Hurt("as it was asked to")


class Hurt(Exception):
    """A task or a driver fails for no reason of the log's."""


def rows_of(txn, batch):
    """The values of a batch, by part: always the same, as from a source with offsets."""
    dice = Random(f"{txn} {batch}")
    sizes = dice.choices([0, 1, 5, 40], k=dice.randrange(1, 4))
    return [[f"p {txn} {batch} {part} {n}".encode() for n in range(size)] for part, size in enumerate(sizes)]


def as_text(part):
    return b64encode(pickle.dumps(part)).decode()


def from_text(text):
    return pickle.loads(b64decode(text))


class Load:
    """What one handle appends, batch after batch, until it is not the owner any more or is to stop."""

    def __init__(self, clock, owner, handle, batch, pause_s):
        self.clock, self.pause_s = clock, pause_s
        self.owner, self.handle, self.batch = owner, handle, batch
        self.sent = self.acked = self.under_way = 0
        self.ended = Deferred()
        self._stopped, self._wanted = False, None
        tell("owner", handle, owner.epoch, owner.end.index)

    def go_on(self):
        while not self._stopped and self.under_way < UNDER_WAY_MAX:
            first, self.sent = self.sent, self.sent + self.batch
            self.under_way += 1
            values = [f"{self.handle} {self.owner.epoch} {n}".encode() for n in range(first, self.sent)]
            self.owner.append_many(values).addCallbacks(self._safe, self._lost, (first,), {}, (first,), {})

    def _safe(self, appended, first):
        indexes = appended.indexes
        runs = [[first, indexes[0], 0]]
        for n, index in enumerate(indexes, first):
            if index != runs[-1][1] + runs[-1][2]:
                runs.append([n, index, 0])
            runs[-1][2] += 1
        lines = (f"acked {self.handle} {self.owner.epoch} {n} {index} {many}" for n, index, many in runs)
        tell("\n".join(lines))
        self.acked += len(indexes)
        self._answered()

    def _lost(self, failure, first):
        tell("failed", self.handle, first, self.batch, failure.type.__name__)
        self._stopped |= failure.check(NotOwner, LogFenced) is not None
        self._answered()

    def _answered(self):
        self.under_way -= 1
        if self._wanted is not None and (self._stopped or self.acked >= self._wanted[0]):
            wanted, self._wanted = self._wanted, None
            wanted[1].callback(None)
        if self._stopped:
            self.stop()
        self.clock.callLater(self.pause_s, self.go_on)

    def stop(self):
        self._stopped = True
        if not self.under_way and not self.ended.called:
            tell("over", self.handle, self.sent)
            self.ended.callback(None)

    def until(self, records):
        """So many more are acknowledged, or it has stopped."""
        done = Deferred()
        if self._stopped:
            done.callback(None)
        else:
            self._wanted = self.acked + records, done
        return done


class Player:
    """One process's part in a story."""

    def __init__(self, job, reactor):
        self.job, self.reactor = job, reactor
        self.left = job.get("nth", 1)
        self.load = None

    def reached(self, name):
        if name == "claim.registered":
            tell("candidate")
        hit = [what for what in ("die_at", "stop_at", "raise_at") if self.job.get(what) == name]
        self.left -= len(hit)
        if hit and self.left == 0:
            hurt(hit[0])

    async def play(self):
        job = self.job
        client = await connect(self.reactor, job["uri"], ClientOptions(session_timeout_ms=job["session_ms"]))
        options = LogOptions(**{"poll_ms": 200, **job.get("options", {})})
        self.logs = Logs(client, options, reached=self.reached, owns_client=True)
        await getattr(self, job["play"])()
        await self.logs.close()

    async def own(self, turn, force=False, wait_s=None):
        owner = await self.logs.own(self.job["log"], force=force, wait_s=wait_s)
        handle, pause_s = f"{self.job['who']}.{turn}", self.job.get("pause_s", PAUSE_S)
        self.load = Load(self.reactor, owner, handle, self.job.get("batch", 20), pause_s)
        self.load.go_on()
        return owner

    async def owner(self):
        """Owns, and appends until it is not the owner any more; then it ends."""
        await self.own(0, self.job.get("force", False))
        await self.load.ended

    async def lives(self):
        """
        Comes to every step of an owner: rolls, a fence from outside, a clean end, and an owner that is deposed by
        another handle, over and over.
        """
        owner = None
        for turn in count():
            former = self.load
            owner = await self.own(turn, force=turn > 0 or self.job.get("force", False))
            if former is not None:
                await former.ended
            await self.load.until(60)
            open_ledger = (await self.logs.info(self.job["log"])).ledger
            if open_ledger is not None:
                await self.logs.bk.recover_ledger(open_ledger)
            await self.load.until(60)
            if turn % 2:
                self.load.stop()
                await owner.close()

    async def fighter(self):
        """Takes the log by force whenever it is another's."""
        for turn in count():
            with suppress(NotOwner, LogFenced):
                await self.own(turn, force=True, wait_s=0.5)
                await self.load.ended

    async def many(self):
        """Owns so many logs, with one record in each."""

        async def one(number):
            name = f"{self.job['log']}-{number}"
            await self.logs.create(name)
            await (await self.logs.own(name)).append(name.encode())

        for first in range(0, self.job["logs"], 10):
            await gatherResults([Deferred.fromCoroutine(one(first + n)) for n in range(10)])
        tell("ready")
        await Deferred()

    async def consumer(self):
        """Holds a cursor, and acknowledges some of what it reads, out of order, until all of it was read."""
        cursor, dice = await self.logs.cursor(self.job["log"], "billing", start="begin"), Random(self.job["seed"])
        while records := await cursor.read(dice.randrange(1, 30)):
            some = [record.index for record in records if dice.random() < 0.7]
            dice.shuffle(some)
            tell("acks", *some)
            cursor.ack_many(some)
            if dice.random() < 0.5:
                await cursor.persist()
                tell("stored")
        tell("ready")
        await Deferred()

    async def made(self):
        """Creates a log and deletes it."""
        await self.logs.create(self.job["log"])
        await self.logs.delete(self.job["log"])

    async def task(self):
        """Writes some parts of a batch, and is perhaps hurt in the middle of each, or of a step."""
        job = self.job
        sink = await self.logs.sink(job["log"], job["txn"], job["run"])
        rows = rows_of(job["txn"], job["batch"])
        for number in job["parts"]:
            writer = await sink.part(job["batch"], number, job["attempt"])
            half = len(rows[number]) // 2
            await writer.append_many(rows[number][:half])
            tell("half")
            if "half" in job:
                hurt(job["half"])
            await writer.append_many(rows[number][half:])
            tell("part", number, as_text(await writer.close()))

    async def commit(self):
        job = self.job
        sink = await self.logs.sink(job["log"], job["txn"], job["run"])
        receipt = await sink.commit(job["batch"], [from_text(part) for part in job["parts"]])
        tell("receipt", receipt.batch, receipt.first, receipt.end, receipt.again)

    async def abort(self):
        job = self.job
        sink = await self.logs.sink(job["log"], job["txn"], job["run"])
        await sink.abort(job["batch"], [from_text(part) for part in job["parts"]])
        tell("aborted", job["batch"])

    async def replica(self):
        """A replica that stands, with clients."""
        self.standing = Standing(self, tell)
        await self.standing.live()

    async def store(self):
        """A message store that stands, with puts."""
        await Master(self, tell).live()

    async def adopt(self):
        await self.logs.adopt(self.job["log"], self.job["parts"])

    def command(self, line):
        word, *rest = line.split()
        if word == "read":
            self.standing.read(*rest)
            return
        owner = self.load.owner
        if word == "transfer":
            owner.transfer(*rest)
        elif word == "close":
            self.load.stop()
            owner.close()
        else:
            owner.roll()


def hear(player):
    """In a thread of its own: commands, and the end."""
    for line in sys.stdin:
        player.reactor.callFromThread(player.command, line)
    os._exit(0)


def main(job):
    """The whole life of a worker; it never returns."""
    from twisted.internet import reactor

    player = Player(job, reactor)

    def failed(failure):
        if not failure.check(LedgerError, Hurt):
            failure.printTraceback()
        tell("ended", failure.type.__name__, failure.getErrorMessage())

    def begin():
        Deferred.fromCoroutine(player.play()).addErrback(failed).addBoth(lambda _: reactor.stop())

    threading.Thread(target=hear, args=(player,), daemon=True).start()
    reactor.callWhenRunning(begin)
    reactor.run(installSignalHandlers=False)
    os._exit(0)


def serve(requests):
    """Jobs are started and answered with their process id, an id with the status of that process, until the end."""
    while True:
        data, files, _flags, _address = socket.recv_fds(requests, 1 << 16, 2)
        if not data:
            return
        asked = json.loads(data)
        if isinstance(asked, int):
            answer = os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1])
        else:
            answer = os.fork()
            if answer == 0:
                requests.close()
                for number, file in enumerate(files):
                    os.dup2(file, number)
                    os.close(file)
                main(asked)
            for file in files:
                os.close(file)
        requests.send(json.dumps(answer).encode())


if __name__ == "__main__":
    for each in ("sqlite.tree", "zk.store"):
        import_module(f"quire.metadata.{each}")
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
