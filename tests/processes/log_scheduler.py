"""
A scheduler as a streaming engine has it, with tasks and drivers as processes: each batch is written and published with
something that goes wrong, and is written and published again by a new run until its driver has heard that it is done.

Knows: which batch is next, which run is the present one, and what the log has to hold.
Does not know: what is in the log; `left_over` and the test compare.
"""

import json
import signal
from itertools import count

from twisted.internet.defer import gatherResults

from quire.log.store.ledgers import log_of
from tests import stopped
from tests.metadata.proxy import Proxy
from tests.processes.log_worker import rows_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

PARTS = ["part.claimed", "part.intended", "part.created", "part.looked", "part.written", "part.closed"]
COMMITS = ["publish.checked", "publish.settled", "publish.done", "janitor.fenced", "janitor.deleted", "janitor.cleared"]
ABORTS = ["abort.moved", "abort.fenced", "abort.deleted", "abort.cleared"]
RUNS = (f"run-{number}" for number in count())
TRIES_MAX = 5


class Query:
    """One stream of batches into one log.  `published`: (txn, batch) in the order of the log."""

    def __init__(self, story, cluster, dice):
        self.story, self.cluster, self.dice = story, cluster, dice
        self.published = []
        self.txns = []
        self.new_checkpoint()

    def new_checkpoint(self):
        """The old one is lost: all is written again, under another name."""
        self.txn = f"query-{len(self.txns)}"
        self.txns.append(self.txn)
        self.batch = 0
        self.run = next(RUNS)

    def worker(self, play, parts, run_id="", **job):
        said = {"txn": self.txn, "run": run_id or self.run, "batch": self.batch, "parts": parts}
        return self.story.worker(play, **said | job)

    # -- steps -----------------------------------------------------------------------------------------------------

    def written(self, attempt=0, **job):
        """A task that writes all parts, and its messages when it has ended; none when it was hurt."""
        parts = list(range(len(rows_of(self.txn, self.batch))))
        task = self.worker("task", parts, attempt=attempt, **job)
        task.wait()
        return [text for _number, text in task.words("part")]

    def stopped_task(self):
        """A task that stands in the middle of its first part."""
        task = self.worker("task", [0], attempt=9, half="stop_at")
        task.until("half")
        stopped.wait(task.pid)
        return task

    def goes_on(self, task):
        task.signal(signal.SIGCONT)
        task.wait()

    def commit(self, messages, **job):
        """Whether the driver has told its receipt, and that."""
        driver = self.worker("commit", messages, **job)
        driver.wait()
        return self.heard(driver)

    def heard(self, driver):
        for batch, _first, _end, _again in driver.words("receipt"):
            assert int(batch) == self.batch
            self.published.append((self.txn, self.batch))
            self.batch += 1
            return True
        return False

    def again(self):
        """The query is started again: a new run writes and publishes the batch; a task of the old run is too late."""
        old, self.run = self.run, next(RUNS)
        messages = self.written()
        if self.dice.random() < 0.3:
            zombie = self.worker("task", [0], old, attempt=7)
            zombie.wait()
            assert zombie.words("ended")[0][0] == "LogFenced"
        assert self.commit(messages)

    def step(self, case, *given):
        """One batch, published at last, with that case of what can go wrong."""
        before = len(self.published)
        if not getattr(self, case)(*given):
            self.again()
        assert len(self.published) == before + 1

    # -- cases: whether the batch was published and the driver has heard it -------------------------------------------

    def nothing_wrong(self):
        return self.commit(self.written())

    def task_raises(self):
        self.written(half="raise_at")
        return self.commit(self.written(1))

    def task_killed(self, point="", nth=1):
        """In the middle of a part, or at a step; another attempt follows."""
        self.written(**({"die_at": point, "nth": nth} if point else {"half": "die_at"}))
        return self.commit(self.written(1))

    def speculation(self):
        """Two attempts, both finish; of each part one is taken."""
        both = zip(self.written(), self.written(1), strict=True)
        return self.commit([self.dice.choice(pair) for pair in both])

    def slow_task(self):
        """It goes on after its copy was published."""
        slow = self.stopped_task()
        done = self.commit(self.written(1))
        self.goes_on(slow)
        return done

    def commit_raises(self, point="publish.checked"):
        """Then the driver aborts with every message, in another process, and the query stops."""
        messages = self.written()
        if self.commit(messages, raise_at=point):
            return True
        self.aborted(messages)
        return False

    def aborted(self, messages, **job):
        driver = self.worker("abort", messages, **job)
        driver.wait()
        return driver

    def commit_raises_late(self):
        return self.commit_raises("publish.done")

    def driver_killed(self, point, nth=1):
        self.written(2)  # of which a janitor may take what is not published
        return self.commit(self.written(), die_at=point, nth=nth)

    def abort_killed(self, point, nth=1):
        self.written(2)
        self.aborted(self.written(), die_at=point, nth=nth)
        return False

    def two_drivers(self):
        """One sleeps before it publishes, and wakes when a new run has come to its end."""
        messages, old = self.written(), {"run_id": self.run, "batch": self.batch}
        driver = self.worker("commit", messages, stop_at="publish.checked")
        driver.until("stopped")
        stopped.wait(driver.pid)
        self.again()
        self.goes_on(driver)
        assert driver.words("ended")[0][0] == "LogFenced"
        self.worker("abort", messages, **old).wait()
        return True

    def answer_lost(self):
        """An answer of the metadata store to the driver, at any place; the driver calls again until it knows."""
        messages = self.written()
        proxy = Proxy(reactor, self.cluster.server.port)
        run(proxy.start)
        uri = self.story.uri.replace(self.cluster.server.address, f"127.0.0.1:{proxy.port}")
        proxy.lose_answer(self.dice.randrange(1, 40))
        try:
            return any(self.commit(messages, uri=uri) for _ in range(TRIES_MAX))
        finally:
            run(proxy.stop)

    def bookie_dies(self):
        task = self.stopped_task()
        bookie = self.dice.choice(self.cluster.ids)
        self.cluster.kill(bookie)
        self.goes_on(task)
        done = self.commit(self.written())
        self.cluster.restart(bookie)
        return done

    def ledger_recovered(self):
        """Somebody recovers a ledger that is written: its task fails, another attempt follows."""
        task = self.stopped_task()
        run(self._recover)
        self.goes_on(task)
        return self.commit(self.written(1))

    async def _recover(self):
        records, path = self.story.logs.bk.store.records, f"{await self.story.path()}/intents/{self.txn}"
        for name in await records.children(path):
            for ledger in json.loads((await records.read(f"{path}/{name}")).value)["ledgers"]:
                await self.story.logs.bk.recover_ledger(ledger)

    def checkpoint_lost(self):
        self.new_checkpoint()
        return self.nothing_wrong()

    # -- what has to be ----------------------------------------------------------------------------------------------

    def wanted(self):
        """The published records of the log, in order."""
        return [value for txn, batch in self.published for part in rows_of(txn, batch) for value in part]

    async def left_over(self):
        """Intents, and ledgers of parts that nothing names, after each txn's janitor."""
        logs, records, path = self.story.logs, self.story.logs.bk.store.records, await self.story.path()
        intents = []
        for txn in self.txns:
            await (await logs.sink(self.story.name, txn, "janitor")).janitor()
            intents += await records.children(f"{path}/intents/{txn}")
        manifest = json.loads((await records.read(path)).value)
        listed = manifest["segments"] + manifest["doomed"]
        for chunk in await records.children(f"{path}/chunk"):
            listed += json.loads((await records.read(f"{path}/chunk/{chunk}")).value)["segments"]
        named = {each["ledger"] for each in listed}
        rest = [ledger for ledger in await logs.bk.ledger_ids() if ledger not in named]
        found = await gatherResults([logs.bk.metadata(ledger) for ledger in rest])
        mine = [
            ledger
            for ledger, metadata in zip(rest, found, strict=True)
            if log_of(metadata) == manifest["id"] and metadata.custom["component"] == b"log-part"
        ]
        return intents, mine
