"""
Producers of a log's history: each appends in order, and sends again whatever it was not told of, to whoever owns the
log then.

Whatever became of a try, the log holds each of their values once and in order; what a producer was told is there.
"""

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.log_nodes import Job
from tests.simulation.truth import Violation

if TYPE_CHECKING:
    from tests.simulation.log_history import Handle, LogHistory

NAMES = ("a", "b", "c")
TRIES_AT_THE_END = 20


class SimProducer:
    """`told`: the sequences that it was answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent = 0  # sequences so far
        self.told: set[int] = set()

    def value(self, sequence: int) -> bytes:
        return f"q{self.name}.{sequence}.".encode()

    @property
    def untold(self) -> list[int]:
        return [each for each in range(self.sent) if each not in self.told]


class Producers:
    """Of one history."""

    def __init__(self, history: "LogHistory") -> None:
        self.history = history
        self.all = [SimProducer(name) for name in NAMES]
        self.jobs: list[Job] = []

    def do_produce(self, rng: Random) -> None:
        history = self.history
        handle = history.some_owner(rng)
        if handle is None:
            history.own_one(rng)
            return
        producer = rng.choice(self.all)
        for _ in range(rng.choice((1, 1, 2, 3))):
            self._resend(producer, handle)
        if rng.random() < 0.3 and producer.sent:
            self._append(producer, handle, rng.randrange(producer.sent))
        for _ in range(rng.randint(0, 3)):
            producer.sent += 1
            self._append(producer, handle, producer.sent - 1)

    def _resend(self, producer: SimProducer, handle: "Handle") -> None:
        for sequence in producer.untold:
            self.history.seen["resend"] += 1
            self._append(producer, handle, sequence)

    def _append(self, producer: SimProducer, handle: "Handle", sequence: int) -> None:
        owner, truth, value = handle.owner, self.history.log_truth, producer.value(sequence)
        assert owner is not None
        truth.appended(producer.name, [value])

        def told(job: Job) -> None:
            if job.error is not None:
                self.history.check_error(job, "an append of a producer")
                return
            producer.told.add(sequence)
            index = job.value.index
            self.history.seen["resend answered"] += job.value.duplicate
            if index >= 0 and truth.acked.setdefault(index, value) != value:
                truth.break_("acknowledged", f"index {index} is {truth.acked[index]!r}, {value!r} was told it")

        self.jobs.append(handle.process.ask(owner.append(value, producer=producer.name, sequence=sequence), told))

    def finish(self, handle: "Handle") -> None:
        """Faults are over: what was not told is sent again until it is."""
        for _ in range(TRIES_AT_THE_END):
            for producer in self.all:
                self._resend(producer, handle)
            self.history.until("an append of a producer hangs", lambda: all(job.over for job in self.jobs))
            if not any(producer.untold for producer in self.all):
                return
        raise Violation("ends", "a producer's append does not succeed though nothing fails")

    def reckon(self, values: list[bytes], begin: int) -> None:
        """What the log holds in the end, of a log that was not trimmed: all of each, once, in order."""
        for producer in self.all:
            found = [each for each in values if each.startswith(f"q{producer.name}.".encode())]
            wanted = [producer.value(each) for each in range(producer.sent)]
            if begin == 0 and found != wanted:
                raise Violation("once", f"of the producer {producer.name} the log holds {found}, not {wanted}")
