"""
A history of one partitioned log: owners that share its partitions, stand for those of others and are killed, while
producers append by key with sequences, and the log grows.

While the plan runs anything may fail.  Then every fault ends: what a producer was not told is sent again until it is,
and the partitions must hold each of its values once, in the partition that it was sent to, those of a key in order, and
where a caller was told that they are.  What holds of each partition's manifest and ledgers is held by other profiles.
"""

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

from quire.log.api import PartitionedOwner, Placed, Spread
from quire.log.core.partitions import partition_for
from quire.protocol.errors import LedgerError
from tests.simulation.history import QUIET_SECONDS
from tests.simulation.log_history import NAME, OWN_SECONDS, ROLLS, Handle, LogHistory
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.log_producers import SimProducer
from tests.simulation.log_records import Change
from tests.simulation.log_truth import LogTruth
from tests.simulation.truth import Violation

PARTITIONS, PARTITIONS_MAX = 3, 6
STANDS_MAX = 4
NAMES = ("a", "b")
KEYS = 7
TRIES_AT_THE_END = 20


class PartitionTruth(LogTruth):
    """What callers are told; no manifest is looked at."""

    def changed(self, changes: Iterable[Change]) -> None:
        """Several logs change."""


class Stand:
    """A handle that owns partitions, or wants to."""

    def __init__(self, process: LogProcess) -> None:
        self.process = process
        self.owner: PartitionedOwner | None = None
        self.owning: Job | None = None

    @property
    def over(self) -> bool:
        failed = self.owning is not None and self.owning.error is not None
        return not self.process.alive or failed or (self.owner is not None and self.owner.closed)


class Sender(SimProducer):
    """`placed`: the partition to which each sequence was sent first, and is sent again."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.placed: list[int] = []

    @staticmethod
    def key(sequence: int) -> bytes:
        return b"k%d" % (sequence * 5 % KEYS)


class PartitionHistory(LogHistory):
    """`stands`: of processes that live and died; `count`: how many partitions the log has at least."""

    def _made_truth(self) -> LogTruth:
        self.stands: list[Stand] = []
        self.senders = [Sender(name) for name in NAMES]
        self.jobs: list[Job] = []
        self.count = PARTITIONS
        self.acked: dict[tuple[int, int], bytes] = {}  # by partition and index
        return PartitionTruth(self.world)

    def some_owner(self, rng: Random) -> Handle | None:
        """Steps of logs that want an owner's process choose among all."""
        return None

    def _begin(self) -> None:
        self._begin_cluster()
        e, w, a = self.plan.shape
        made = self.new_process()
        rolls = Random(self.plan.seed).choice(ROLLS)
        job = made.ask(made.logs.create(NAME, partitions=PARTITIONS, ensemble=e, write=w, ack=a, dedup=True, **rolls))
        self.until("the log is made before anything fails", lambda: job.done)
        assert job.error is None, job.error
        for process in self.processes:
            self.let_fail(process)

    # Owners

    def _do_stand(self, rng: Random) -> None:
        process = self.some_process(rng)
        if process.frozen or sum(not stand.over for stand in self.stands) >= STANDS_MAX:
            return
        chosen = rng.choice((None, [0], [1, 2], [2], list(range(PARTITIONS))))
        self._stand(process, chosen, rng.random() < 0.7, rng.random() < 0.15, rng.choice((None, 0.5)))

    def _stand(
        self, process: LogProcess, chosen: list[int] | None, stand: bool, force: bool, wait_s: float | None
    ) -> Stand:
        made = Stand(process)

        def told(job: Job) -> None:
            if job.error is None:
                made.owner = job.value
                self.seen["partitions owned"] += 1
            else:
                self.check_error(job, "own_partitions")

        self.stands.append(made)
        owning = process.logs.own_partitions(NAME, chosen, stand=stand, force=force, wait_s=wait_s)
        made.owning = process.ask(owning, told)
        return made

    def _living(self) -> list[Stand]:
        return [stand for stand in self.stands if not stand.over and stand.owner is not None]

    def _do_leave(self, rng: Random) -> None:
        living = [stand for stand in self._living() if not stand.process.frozen]
        if living:
            stand = rng.choice(living)
            assert stand.owner is not None
            self.jobs.append(stand.process.ask(stand.owner.close(), lambda job: self.check_error(job, "a close")))

    def _do_crash_stand(self, rng: Random) -> None:
        living = self._living()
        if living:
            stand = rng.choice(living)
            assert stand.owner is not None
            self.seen["owner of partitions crashed"] += bool(stand.owner.partitions)
            stand.process.crash()

    def _do_grow(self, rng: Random) -> None:
        process = self.some_process(rng)
        if process.frozen or self.count >= PARTITIONS_MAX:
            return
        wanted = self.count + 1

        def told(job: Job) -> None:
            if job.error is None:
                self.count = max(self.count, wanted)
                self.seen["log grew"] += 1
            elif not isinstance(job.error, LedgerError | ValueError):  # the latter: it has grown further
                self.check_error(job, "a growth")

        self.jobs.append(process.ask(process.logs.update(NAME, partitions=wanted), told))

    # Producers

    def _do_spread(self, rng: Random) -> None:
        """Whoever owns a partition is sent what belongs there: first what was not told, then something new."""
        for stand in self._living():
            owner = stand.owner
            assert owner is not None
            sender = rng.choice(self.senders)
            if stand.process.frozen:
                continue
            mine = set(owner.partitions)
            if sender.sent and len(mine) == owner.count and rng.random() < 0.5:
                self._send_all(stand, sender, min([*sender.untold, sender.sent - 1]))
                continue
            for sequence in sender.untold:
                if sender.placed[sequence] in mine:
                    self.seen["sent again"] += 1
                    self._send(stand, sender, sequence)
            for _ in range(rng.randint(1, 4)):
                place = partition_for(sender.key(sender.sent), owner.count)
                sender.placed.append(place)
                sender.sent += 1
                if place in mine:
                    self._send(stand, sender, sender.sent - 1)

    def _send_all(self, stand: Stand, sender: Sender, first: int) -> None:
        """In a batch, those that were told already among them."""
        owner, sequences = stand.owner, list(range(first, sender.sent))
        assert owner is not None
        if max(sender.placed[first:]) >= owner.count:
            return
        self.seen["batch of several partitions"] += len(set(sender.placed[first:])) > 1
        asked = owner.append_many(
            [sender.value(each) for each in sequences],
            keys=[sender.key(each) for each in sequences],
            partitions=sender.placed[first:],
            producer=sender.name,
            first_sequence=first,
        )
        self.jobs.append(stand.process.ask(asked, partial(self._told, sender, sequences)))

    def _send(self, stand: Stand, sender: Sender, sequence: int) -> None:
        owner, place = stand.owner, sender.placed[sequence]
        assert owner is not None
        if place >= owner.count:  # it has not heard of the growth
            return
        asked = owner.append(
            sender.value(sequence), key=sender.key(sequence), partition=place, producer=sender.name, sequence=sequence
        )
        self.jobs.append(stand.process.ask(asked, partial(self._told, sender, [sequence])))

    def _told(self, sender: Sender, sequences: list[int], job: Job) -> None:
        if job.error is not None:
            self.seen[f"append failed: {type(job.error).__name__}"] += 1
            if not isinstance(job.error, ValueError):  # higher ones were taken: it is sent again to the next owner
                self.check_error(job, "an append of a producer")
            return
        done: Any = job.value
        if isinstance(done, Placed):
            done = Spread([done.partition], [done.index], [done.at])
        for sequence, partition, index in zip(sequences, done.partitions, done.indexes, strict=True):
            value = sender.value(sequence)
            sender.told.add(sequence)
            if partition != sender.placed[sequence]:
                self.truth.break_("placed", f"{value!r} is told to be in {partition}, not {sender.placed[sequence]}")
            if index >= 0 and self.acked.setdefault((partition, index), value) != value:
                was = self.acked[partition, index]
                self.truth.break_("acknowledged", f"partition {partition}, index {index} is {was!r} and {value!r}")

    # Quiet, and the reckoning

    def _end(self) -> None:
        self.doom = None
        self.is_quiet = True
        self._calm()
        last = self.new_process()
        self.until("an append or a close hangs", lambda: all(job.over for job in self.jobs))
        for stand in self.stands:
            if stand.process.alive and stand.owner is not None:
                self.jobs.append(stand.process.ask(stand.owner.close()))
            elif stand.process.alive and stand.owning is not None and not stand.owning.done:
                self.jobs.append(stand.process.ask(stand.process.logs.close()))
        self.until("a close hangs", lambda: all(job.over for job in self.jobs), OWN_SECONDS)
        stand = self._stand(last, None, False, True, None)
        self.until("the partitions can't be owned", lambda: stand.owning is not None and stand.owning.done, OWN_SECONDS)
        if stand.owner is None:
            raise Violation("ends", f"faults are over, and the partitions can't be owned: {stand.owning!r}")
        self._finish(stand, stand.owner)
        self.let_pass(QUIET_SECONDS)
        found = self._read(last)
        self._reckon(found)

    def _finish(self, stand: Stand, owner: PartitionedOwner) -> None:
        """What was not told is sent again in batches, until it is."""
        tries = 0
        while any(sender.untold for sender in self.senders):
            tries += 1
            if tries > TRIES_AT_THE_END:
                raise Violation("ends", "a producer's batch does not succeed though nothing fails")
            for sender in self.senders:
                if sender.sent:
                    self._send_all(stand, sender, 0)
            self.until("a batch of a producer hangs", lambda: all(job.over for job in self.jobs))
        closing = stand.process.ask(owner.close())
        self.until("the last close hangs", lambda: closing.over)

    def _read(self, process: LogProcess) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}

        async def story() -> None:
            reader = await process.logs.read_partitions(NAME)
            async for partition, batch in reader.batches():
                found.setdefault(partition, []).extend(batch.values)
            await reader.close()

        job = process.ask(story())
        self.until("the last reader hangs", lambda: job.over)
        if job.error is not None:
            raise Violation("ends", f"the partitions can't be read: {job.error!r}")
        return found

    def _reckon(self, found: dict[int, list[bytes]]) -> None:
        for (partition, index), value in self.acked.items():
            held = found.get(partition, [])
            if index >= len(held) or held[index] != value:
                self.truth.break_("acknowledged", f"partition {partition} does not hold {value!r} at {index}")
        for sender in self.senders:
            for partition in range(PARTITIONS_MAX):
                wanted = [sender.value(each) for each in range(sender.sent) if sender.placed[each] == partition]
                held = [each for each in found.get(partition, []) if each.startswith(f"q{sender.name}.".encode())]
                if held != wanted:
                    text = f"of the producer {sender.name} partition {partition} holds {held}, not {wanted}"
                    raise Violation("once, in order", text)
