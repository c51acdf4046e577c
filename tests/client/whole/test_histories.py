"""
Random histories of a whole client on a fake cluster: a writer, readers that follow it, recoveries at any moment, while
bookies die and return, requests and answers are lost or late, and the metadata store conflicts and stalls.

Checked from outside (protocol-rules.md 4.5): what was acknowledged is readable after the close with the same bytes
(I2, I4); all openers see one end (I1); nothing is acknowledged beyond it; a reader's end never shrinks nor passes the
final one (I8); every append and open ends exactly once; once faults stop, the ledger can be closed (I7).
"""

from random import Random

import pytest

from quire.metadata.ledger import LedgerState
from quire.metadata.memory.cluster import Fault
from tests.client.fakes.cluster import FakeCluster

SHAPES = [(3, 3, 2), (3, 3, 3), (3, 2, 2), (4, 3, 2), (5, 3, 2), (2, 2, 1)]


class History:
    """One run: a safety phase with faults, then a quiet one in which everything must come to an end."""

    def __init__(self, shape, seed):
        self.random = Random(f"{shape}/{seed}")
        self.shape = shape
        self.cluster = FakeCluster(shape[0] + self.random.randint(0, 3), seed, latency=0.001)
        self.options = {
            "add_timeout_ms": 200,
            "read_timeout_ms": 200,
            "long_poll_ms": 100,
            "speculative_read_ms": 50,
            "window_entries_max": 40,
        }
        client = self.cluster.client(**self.options)
        self.writer = self.cluster.succeed(
            client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2])
        )
        self.appends = []  # (payloads, outcome)
        self.opens = []
        self.tails = []
        self.readers = []  # (reader, highest end seen)
        self.loss = self.random.choice([0.0, 0.0, 0.02, 0.1])
        self.cluster.judge = self.judge
        self.cluster.store_fault = self.store_fault
        self.quiet = False

    def judge(self, _request):
        if self.quiet or self.random.random() > self.loss:
            return "pass"
        return self.random.choice(["drop", "mute", "hold", -12, -105])

    def store_fault(self, name, _given):
        if self.quiet or name != "write_ledger" or self.random.random() < 0.5:
            return None
        return Fault(before=self.random.choice([0, 0.01, 0.1]), after=self.random.choice([0, 0.05]))

    def run(self):
        steps = [
            self.append,
            self.append,
            self.append,
            self.wait,
            self.wait,
            self.kill,
            self.restart,
            self.restart,
            self.let_go,
            self.lag,
            self.look,
            self.follow,
        ]
        for _ in range(self.random.randint(10, 60)):
            self.random.choice(steps)()
            self.check_ends()
            if self.random.random() < 0.03:
                self.open()
        if self.random.random() < 0.5:
            self.open()
        if self.random.random() < 0.3:
            self.close()
        self.settle()

    def append(self):
        start = sum(len(payloads) for payloads, _outcome in self.appends)
        payloads = [b"%d" % number for number in range(start, start + self.random.randint(1, 8))]
        self.appends.append((payloads, self.cluster.outcome(self.writer.append_many(payloads))))

    def wait(self):
        self.cluster.spin(self.random.choice([0.001, 0.003, 0.05, 0.3]))

    def kill(self):
        up = [name for name, bookie in self.cluster.bookies.items() if bookie.up]
        if len(up) > self.shape[1] - self.shape[2]:
            self.cluster.kill(self.random.choice(up))

    def restart(self):
        down = [name for name, bookie in self.cluster.bookies.items() if not bookie.up]
        if down:
            self.cluster.restart(self.random.choice(down))

    def let_go(self):
        self.cluster.let_go(lambda _request: self.random.random() < 0.5)

    def lag(self):
        name = self.random.choice(sorted(self.cluster.bookies))
        self.cluster.slow[name] = self.random.choice([0.0, 0.002, 0.05])

    def open(self):
        self.opens.append(self.cluster.outcome(self.cluster.client(**self.options).open_ledger(self.writer.id)))

    def look(self):
        if len(self.readers) < 2:
            outcome = self.cluster.outcome(
                self.cluster.client(**self.options).open_ledger(self.writer.id, recover=False)
            )
            self.cluster.spin(0.01)
            if outcome.code == 0:
                self.readers.append([outcome.value, outcome.value.last_entry_id])
        for pair in self.readers:
            self.cluster.outcome(pair[0].read_last_confirmed())

    def follow(self):
        if self.readers and not self.tails:
            got = []

            async def run(reader):
                async for batch in reader.tail(30.0):
                    got.extend(batch)

            self.tails.append((got, self.cluster.outcome(run(self.readers[0][0]))))

    def close(self):
        self.cluster.outcome(self.writer.close())

    def check_ends(self):
        for pair in self.readers:
            assert pair[0].last_entry_id >= pair[1], "a reader's end shrank"
            pair[1] = pair[0].last_entry_id

    def settle(self):
        cluster = self.cluster
        self.quiet = True
        cluster.let_go()
        cluster.slow.clear()
        cluster.restart(*[name for name, bookie in cluster.bookies.items() if not bookie.up])
        cluster.spin(5)
        if cluster.metadata(self.writer.id).state is LedgerState.OPEN and self.random.random() < 0.5:
            cluster.outcome(self.writer.close())
            cluster.spin(5)
        self.open()
        cluster.spin(70)
        assert self.opens[-1].code == 0, f"once faults stop the ledger can be opened: {self.opens[-1].error}"
        self.check(self.opens[-1].value)

    def check(self, reader):
        cluster, metadata = self.cluster, self.cluster.metadata(self.writer.id)
        assert metadata.is_closed
        end = metadata.last_entry
        assert all(outcome.done for _payloads, outcome in self.appends), "an append hangs"
        assert all(outcome.done for outcome in self.opens), "an open hangs"
        assert {outcome.value.last_entry_id for outcome in self.opens if outcome.code == 0} == {end}
        entries = [entry.data for entry in cluster.succeed(reader.read(0, end))] if end >= 0 else []
        assert metadata.length == sum(map(len, entries))
        for payloads, outcome in self.appends:
            if outcome.code == 0:
                assert outcome.value[-1] <= end, "acknowledged beyond the end"
                assert [entries[entry] for entry in outcome.value] == payloads
        accepted = [payload for payloads, _outcome in self.appends for payload in payloads]
        assert entries == accepted[: end + 1], "ids follow the order of appending"
        for pair in self.readers:
            assert pair[1] <= end, "a reader saw an end that the ledger does not have"
            assert cluster.succeed(pair[0].read_last_confirmed()) <= end
        for got, tail in self.tails:
            assert tail.done, "a tail hangs"
            assert [entry.data for entry in got] == entries[: len(got)]
            if tail.code == 0:
                assert len(got) == end + 1


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "/".join(map(str, shape)))
def test_random_histories(shape):
    """Random histories of appends, failures and recoveries keep what was acknowledged."""
    for seed in range(30):
        try:
            History(shape, seed).run()
        except BaseException as error:
            raise AssertionError(f"shape {shape}, seed {seed}: {error!r}") from error
