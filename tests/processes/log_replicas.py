"""
A replica of a log in a worker (`tests.processes.log_worker`), and clients that write and read registers by it; what
they tell, and whether that is linearizable.

    leading <epoch>, following <epoch>                   its role
    chain <index> <hash>                                 the state when all below that index is applied
    begin <call> <key> write <value> <time>              a client's call, and its answer; times of one clock for all
    begin <call> <key> read <mode> <time>                processes
    end <call> done <value> <time>, end <call> failed <error> <time>
    cut                                                  the log begins at a snapshot
    read <mode> done <value>, read <mode> failed <error>     of a `read <mode> <key>` that came on its standard input
"""

import json
import time
from hashlib import sha256
from random import Random

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogFenced, NotOwner
from tests.linear import NEVER, Call, first_broken
from tests.simulation.log_reads import in_order

# SPDX-License-Identifier: Apache-2.0

KEYS = 2
TOLD_EVERY = 20  # records
NEVER_IN = (NotOwner.__name__, LogFenced.__name__)  # of a write that is not in the log
NONE = "-"


class Registers:
    """The newest value of each key, and a hash over all (index, value)."""

    name = "registers"

    def __init__(self, tell):
        self.values, self.hash, self.applied = {}, "", 0
        self._tell = tell

    def apply(self, record):
        assert record.index == self.applied, f"{record.index} instead of {self.applied}"
        key, value = json.loads(record.value)
        self.values[key] = value
        self.hash = sha256(f"{self.hash}{record.index}".encode() + record.value).hexdigest()
        self.applied += 1
        if self.applied % TOLD_EVERY == 0:
            self._tell("chain", self.applied, self.hash)
        return value

    def save(self):
        self._tell("chain", self.applied, self.hash)
        return [json.dumps([self.applied, self.hash, self.values]).encode()]

    def load(self, data):
        self.applied, self.hash, values = json.loads(b"".join(data))
        self.values = {int(key): value for key, value in values.items()}
        self._tell("chain", self.applied, self.hash)

    def role(self, role, epoch):
        self._tell(role.value, epoch)


class Standing:
    """One worker's replica.  The job: `modes` of its clients' reads, `clients`, and whether it `cuts` the log."""

    def __init__(self, player, tell):
        self.job, self.logs, self.reactor = player.job, player.logs, player.reactor
        self._tell = tell
        self.replica = None

    async def live(self):
        self.replica = await self.logs.replica(self.job["log"], lambda: Registers(self._tell), stand=True)
        self._tell("ready")
        rng = Random(self.job["who"])
        for number in range(self.job.get("clients", 2)):
            self._run(self._client(number, Random(rng.random())))
        if self.job.get("cuts"):
            self._run(self._cut())
        await Deferred()

    def _run(self, story):
        Deferred.fromCoroutine(story).addErrback(lambda failure: self._tell("broken", failure.getErrorMessage()))

    async def _client(self, client, rng):
        modes, number = self.job.get("modes", ["index"]), 0
        while True:
            key, call = rng.randrange(KEYS), f"{self.job['who']}.{client}.{number}"
            number += 1
            if rng.random() < 0.4:
                await self._called(call, key, "write", call)
            else:
                await self._called(call, key, "read", rng.choice(modes))
            await deferLater(self.reactor, rng.choice((0.0, 0.005, 0.02)))

    async def _called(self, call, key, what, how):
        self._tell("begin", call, key, what, how, time.monotonic())
        try:
            if what == "write":
                found = await self.replica.propose(json.dumps([key, how]).encode())
            else:
                found = (await self.replica.read(lambda machine: machine.values.get(key, NONE), how)).value
        except LedgerError as error:
            self._tell("end", call, "failed", type(error).__name__, time.monotonic())
            await deferLater(self.reactor, 0.05)
        else:
            self._tell("end", call, "done", found, time.monotonic())

    async def _cut(self):
        """Lets the log begin at its oldest kept snapshot, now and then."""
        while True:
            await deferLater(self.reactor, 0.1)
            try:
                kept = await self.logs.snapshots(self.job["log"])
                if kept and await self.logs.trim(self.job["log"], kept[0].index):
                    self._tell("cut")
                await self.logs.tidy(self.job["log"])
            except (LedgerError, ValueError) as error:  # another one's snapshot came between
                self._tell("uncut", type(error).__name__)

    def read(self, mode, key):
        """Once, and tells what it was."""

        async def story():
            try:
                found = await self.replica.read(lambda machine: machine.values.get(int(key), NONE), mode)
            except LedgerError as error:
                self._tell("read", mode, "failed", type(error).__name__)
            else:
                self._tell("read", mode, "done", found.value)

        self._run(story())


# -- what they told ----------------------------------------------------------------------------------------------------


def one_state(told):
    """All chains agree at each index; how many were compared with another one."""
    states, compared = {}, 0
    for words in told:
        if words[0] == "chain":
            index, state = words[1:]
            compared += index in states
            assert states.setdefault(index, state) == state, f"two states at index {index}"
    return compared


def calls_of(told, values):
    """
    The calls of all clients; the log's values tell which writes without an answer took effect, and the order of all.
    """
    order = [json.loads(value) for value in values]
    places = {value: place for place, (_key, value) in enumerate(order, 1)}
    assert len(places) == len(order), "a write is twice in the log"
    newest, before = dict.fromkeys(range(KEYS), 0), {}
    for key, value in order:
        before[value], newest[key] = newest[key], places[value]
    ends = {words[1]: words[2:] for words in told if words[0] == "end"}
    found = []
    for words in told:
        if words[0] != "begin":
            continue
        call, key, what, how, begun = words[1], int(words[2]), words[3], words[4], float(words[5])
        outcome, answer, ended = ends.get(call, ("failed", "killed", NEVER))
        done = outcome == "done"
        if what == "read":
            if done:
                place = 0 if answer == NONE else places[answer]
                found.append(Call(begun, float(ended), key, ("read",), place))
        elif how in places:
            assert done or answer not in NEVER_IN, f"{call} failed with {answer}, and is in the log"
            end = float(ended) if done else NEVER
            found.append(Call(begun, end, key, ("write", before[how], places[how]), True))
        else:
            assert not done, f"{call} was answered, and is not in the log"
    return found


def judge(told, values):
    """Some order of all calls explains every answer; how many reads and writes were answered."""
    assert not [words for words in told if words[0] == "broken"]
    calls = calls_of(told, values)
    broken = first_broken(calls, in_order, 0)
    assert broken is None, f"no order explains the calls of key {broken[0].key}: {list(broken)[-30:]}"
    answered = [call.what[0] for call in calls if call.end < NEVER]
    return answered.count("read"), answered.count("write")
