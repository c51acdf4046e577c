"""
Snapshots that are made and trims that cut the log, by several processes at once, over a store that is slow and loses
answers: whatever the manifest says at any moment, a replica can begin from each snapshot that it keeps.
"""

from random import Random

from twisted.internet.defer import Deferred

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.log.core.machine.snapshots import KEPT
from quire.log.core.manifest import Manifest
from quire.log.store.paths import log_path
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import LedgerError, MetaStore
from tests.client.fakes.cluster import FakeCluster
from tests.log.fakes.machines import Chain, Made
from tests.log.machine.test_snapshots import flipped
from tests.metadata.stored import records

# SPDX-License-Identifier: Apache-2.0

HISTORIES, STEPS = 12, 60
SLOW_S = (0.0, 0.0, 0.002, 0.02, 0.1, 0.3)


class History:
    """One log, a replica that leads, one that follows, and a third process; judged at every request to the store."""

    def __init__(self, seed):
        self.rng = Random(seed)
        self.cluster = FakeCluster(seed=seed)
        self.logs = [
            Logs(self.cluster.client(placement="random"), LogOptions(poll_ms=50), now=lambda: 9.0) for _ in range(3)
        ]
        self.seen = set()
        self.broken = None
        self.begin, self.newest = 0, 0
        self.leader, self.follower = self.cluster.succeed(self.begun())
        self.path = log_path(self.cluster.succeed(self.logs[0].info("a")).id)
        self.cluster.store_fault = self.fault

    async def begun(self):
        await self.logs[0].create("a", roll_records=3)
        self.made = Made()
        leader = await self.logs[0].replica("a", self.made, stand=True)
        assert await leader.leads(60)
        return leader, await self.logs[1].replica("a", Chain)

    def manifest(self):
        return Manifest.decode(records(self.cluster.shared)[self.path].data)

    def judge(self):
        """Indexes of snapshots rise, none is below the log's begin, none is doomed, and the begin stays behind them."""
        manifest = self.manifest()
        kept, begin = manifest.snapshots, manifest.begin.index
        assert [each.index for each in kept] == sorted({each.index for each in kept})
        assert len(kept) <= KEPT
        assert all(each.index >= begin for each in kept), (kept, begin)
        assert kept or begin == 0
        assert not {each.ledger for each in kept} & {each.ledger for each in manifest.doomed}
        newest = max((each.index for each in kept), default=0)
        assert begin >= self.begin
        assert newest >= self.newest
        if begin > self.begin:
            self.seen.add("trimmed")
        if len(kept) == KEPT:
            self.seen.add("one went")
        self.begin, self.newest = begin, newest

    def fault(self, name, _arguments):
        try:
            self.judge()
        except AssertionError as error:  # the code under test may catch what is raised here
            self.broken = self.broken or error
        if name == "transact" and self.rng.random() < 0.1:
            self.seen.add("answer lost")
            return Fault(error=MetaStore("no answer"), applied=self.rng.random() < 0.5)
        return Fault(before=self.rng.choice(SLOW_S), after=self.rng.choice(SLOW_S))

    def ask(self, story):
        """Goes on by itself."""

        def failed(failure):
            failure.trap(LedgerError, ValueError)
            self.seen.add(failure.type.__name__)

        return Deferred.fromCoroutine(story).addErrback(failed)

    def run(self):
        rng, asked = self.rng, []
        for _ in range(STEPS):
            end = self.leader.applied
            what = rng.randrange(4)
            if what == 0:
                asked.append(self.ask(rng.choice((self.leader, self.follower)).snapshot()))
            elif what == 1:
                kept = [each.index for each in self.manifest().snapshots]
                before = rng.choice([*kept, rng.randint(0, end)])
                asked.append(self.ask(rng.choice(self.logs).trim("a", before)))
            else:
                asked += [self.ask(self.leader.propose(b"%d" % rng.randrange(100))) for _ in range(rng.randint(1, 9))]
            self.cluster.spin(rng.choice((0.0, 0.01, 0.1, 0.5)))
        self.cluster.store_fault = lambda *_: None
        self.cluster.spin(30.0)
        assert all(each.called for each in asked)
        self.judge()
        if self.broken is not None:
            raise self.broken

    def loaded(self, end):
        made = Made()

        async def work():
            replica = await self.logs[2].replica("a", made)
            await made.last.reached(end)
            await replica.close()

        self.cluster.succeed(work())
        return made.last

    def from_each(self):
        """A fresh replica begins from each that is kept, the newer ones being damaged, and comes to the same state."""
        end, state = self.leader.applied, self.made.last.hash
        for snapshot in reversed(self.manifest().snapshots):
            found = self.loaded(end)
            assert (found.loaded, found.hash) == (snapshot.index, state)
            for bookie in self.cluster.bookies.values():
                entries = bookie.ledgers[snapshot.ledger].entries
                entries[0] = flipped(entries[0], -1)

    def close(self):
        async def closed():
            for each in (self.leader, self.follower, *self.logs):
                await each.close()

        self.cluster.succeed(closed())


def test_each_snapshot_that_is_kept_has_its_tail():
    """In every version of the manifest; at the end it is loaded from each."""
    seen = set()
    for seed in range(HISTORIES):
        history = History(seed)
        try:
            history.run()
            history.from_each()
            history.close()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        seen |= history.seen
    assert {"trimmed", "one went", "answer lost", "ValueError"} <= seen
