"""
Replicas of a named log in a history, the reads that clients ask of them, and whether any order explains the answers.

Each record writes one of a few registers.  A read is judged by the mode's promise: what was acknowledged before it was
asked is in its answer; a bounded one's before the age that it tells.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from random import Random
from typing import Any

from quire.log.machine.replica import Replica
from quire.log.owner.handle import Owner
from quire.log.reader.batches import Record
from quire.protocol.log_errors import AppendUnknown
from tests.linear import NEVER, Call, first_broken
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.truth import Violation

KEYS = 2
READS_MAX = 40  # under way
REPLICAS_MAX = 4
BOUND_MS = (0, 100, 1000)
GROUPS = (1, 1, 2, 4)  # appends of one turn, and with them entries that an owner sends together
ASKED_S = (0.0, 0.05, 0.1, 0.2, 0.4)  # after a usurper's append, or a close beside a deaf owner


def key_of(value: bytes) -> int:
    """The register that a record writes: `handle.number.` and more."""
    return int(value.split(b".")[1]) % KEYS


def in_order(state: Hashable, what: tuple[Any, ...]) -> tuple[Hashable, Any]:
    """A `Model` of a register whose writes are in a known order."""
    match what:
        case ("write", before, after):
            return (after, True) if state == before else (state, False)
        case _:
            return state, state


class Registers:
    """The newest value of each key.  `hears` of each index that is applied."""

    name = "registers"

    def __init__(self, hears: Callable[[int], None]) -> None:
        self.values: dict[int, bytes] = {}
        self._hears = hears

    def apply(self, record: Record) -> None:
        self._hears(record.index)
        self.values[key_of(record.value)] = record.value

    def save(self) -> list[bytes]:
        return [b"%d %s\n" % each for each in self.values.items()]

    def load(self, data: Iterable[bytes]) -> None:
        rows = (row.partition(b" ") for row in b"".join(data).splitlines())
        self.values = {int(key): value for key, _space, value in rows}


class Standing:
    """A replica in a process."""

    def __init__(self, process: LogProcess, stands: bool) -> None:
        self.process = process
        self.stands = stands
        self.replica: Replica | None = None
        self.asked: Job

    @property
    def works(self) -> bool:
        usable = self.process.alive and not self.process.left
        return self.replica is not None and usable and self.replica.error is None


class Reads:
    """Of one history."""

    def __init__(self, history: Any) -> None:
        self.history = history
        self.standing: list[Standing] = []
        self.calls: list[Call] = []  # that were answered
        self.written: dict[bytes, float] = {}  # what was appended, and is not answered or not known to be in the log
        self.jobs: list[Job] = []
        self.usurpers: set[bytes] = set()  # their first values, with which they begin

    @property
    def now(self) -> float:
        return float(self.history.world.timeline.now)

    # -- writes ----------------------------------------------------------------------------------------------------

    def begin(self, values: Sequence[bytes]) -> None:
        """They are appended."""
        self.written.update(dict.fromkeys(values, self.now))

    def end(self, values: Sequence[bytes], error: Exception | None) -> None:
        """They are acknowledged, or not in the log, or may be."""
        if isinstance(error, AppendUnknown):
            return
        for value in values:
            begun = self.written.pop(value)
            if error is None:
                self.calls.append(Call(begun, self.now, key_of(value), ("write", value)))
                if value in self.usurpers:
                    for wait_s in ASKED_S:
                        self.history.world.timeline.at(wait_s, partial(self._ask_everywhere, "lease", key_of(value)))

    # -- steps -----------------------------------------------------------------------------------------------------

    def do_read_stand(self, rng: Random) -> None:
        """A replica that stands for the log."""
        self._stand(rng, True)

    def do_read_watch(self, rng: Random) -> None:
        """One that only follows."""
        self._stand(rng, False)

    def _stand(self, rng: Random, stand: bool) -> None:
        history = self.history
        process = history.some_process(rng)
        living = [each for each in self.standing if each.process.alive]
        if process.frozen or len(living) >= REPLICAS_MAX:
            return
        made = Standing(process, stand)
        self.standing.append(made)
        make = process.logs.replica("orders", partial(Registers, self.applied), stand=stand)

        def told(job: Job) -> None:
            made.replica = job.value
            if job.error is not None:
                history.check_error(job, "a replica")

        made.asked = process.ask(make, told)

    def do_read_write(self, rng: Random) -> None:
        """By a replica that leads: as appends of its own handle, of which several in one turn leave as a group."""
        each = self._leading(rng)
        if each is not None:
            handle = self._handle_of(each)
            for _ in range(rng.choice(GROUPS)):
                self.history.append(handle, handle.values(rng, rng.randint(1, 3), rng.choice((8, 8, 300))))

    def _leading(self, rng: Random) -> Standing | None:
        leading = [each for each in self.standing if each.works and each.replica and each.replica.owner is not None]
        leading = [each for each in leading if not each.process.frozen]
        return rng.choice(leading) if leading else None

    def _handle_of(self, each: Standing) -> Any:
        assert each.replica is not None
        return self.history.handle_of(each.process, each.replica.owner)

    def do_read_ask(self, rng: Random) -> None:
        """A client reads, at one replica or at all."""
        self.check_leases()
        modes = self.history.plan.profile.reads
        there = [each for each in self.standing if each.works and not each.process.frozen]
        for each in there if rng.random() < 0.5 else there[-1:]:
            if sum(not job.over for job in self.jobs) < READS_MAX:
                self.read(each, rng.choice(modes), rng.randrange(KEYS), rng.choice(BOUND_MS))

    def read(self, each: Standing, mode: str, key: int, bound_ms: int) -> Job:
        """Of one register."""
        begun, seen = self.now, self.history.seen
        assert each.replica is not None
        bound = bound_ms if mode == "bounded" else None

        def told(job: Job) -> None:
            error = job.error
            if error is not None:
                seen[f"{mode} read failed {type(error).__name__}"] += 1
                self.history.check_error(job, f"a read by {mode}")
                return
            seen[f"{mode} read"] += 1
            since = min(begun, self.now - job.value.age_ms / 1000) if mode == "bounded" else begun
            self.calls.append(Call(since, self.now, key, ("read",), job.value.value))
            self.history.world.tell(f"{each.process.name} read {key} by {mode}: {job.value.value!r}")

        asked = each.replica.read(lambda machine: machine.values.get(key), mode, bound)
        job = each.process.ask(asked, told)
        self.jobs.append(job)
        return job

    def check_leases(self) -> None:
        """At most one process could answer by a lease, frozen ones too."""
        holders = [owner.epoch for owner in self._holders()]
        self.history.seen["lease held"] += len(holders)
        if len(holders) > 1:
            self.history.truth.break_("lease", f"the owners of epochs {sorted(holders)} hold a lease at once")

    def _holders(self) -> list[Owner]:
        owners = {each.replica.owner for each in self.standing if each.works and each.replica}
        owners |= {handle.owner for handle in self.history.handles if handle.process.alive}
        return [owner for owner in owners if owner is not None and owner.lease.holds]

    def applied(self, index: int) -> None:
        """By some replica; whoever holds a lease knows that this is acknowledged."""
        for owner in self._holders():
            if owner.end.index <= index:
                self.history.truth.break_(
                    "lease",
                    f"record {index} is applied; the owner of epoch {owner.epoch} holds a lease, and knows of "
                    f"{owner.end.index}",
                )

    def do_read_leases(self, rng: Random) -> None:
        """They are turned off, on, and given another time."""
        process = self.history.some_process(rng)
        if not process.frozen:
            lease_ms = rng.choice((0, 100, 400, 1500))
            process.ask(
                process.logs.update("orders", lease_ms=lease_ms), lambda job: self.history.check_error(job, "update")
            )

    def do_read_usurp(self, rng: Random) -> None:
        """The next one that takes a lease which nobody has is replaced by force meanwhile, or soon after."""
        self.history.set_trap("lease.looked", "claim.epoch", self._usurp, rng)

    def _usurp(self, process: LogProcess, rng: Random) -> None:
        """Another one claims the log, appends at once, and from its acknowledgement on it is read everywhere."""
        history = self.history
        others = [each for each in history.processes if each.alive and not each.frozen and each is not process]
        if history.is_quiet or not process.alive or not others:
            return
        history.seen["usurped"] += 1

        def append(handle: Any) -> None:
            values = handle.values(rng, 1, 8)
            self.usurpers.add(values[0])
            history.append(handle, values)

        history.own(rng.choice(others), rng, True, append)

    def do_read_repair(self, rng: Random) -> None:
        """
        The owner hears nothing of bookies while they store what it appends, and somebody closes its ledger; from then
        on it is read everywhere.
        """
        each = self._leading(rng)
        if each is None:
            return
        history, timeline = self.history, self.history.world.timeline
        handle = self._handle_of(each)
        values = handle.values(rng, 1, 8)
        deaf = [(bookie.host, each.process.name) for bookie in history.bookies]
        for pair in deaf:
            history.world.network.block(*pair)
        history.append(handle, values)
        history.seen["closed beside a deaf owner"] += 1
        timeline.at(rng.choice((0.02, 0.05)), history.recover_open_ledger)
        for wait_s in ASKED_S:
            for mode in ("index", "lease"):
                timeline.at(0.1 + wait_s, partial(self._ask_everywhere, mode, key_of(values[0])))
        timeline.at(rng.choice((0.2, 0.6)), lambda: history.world.network.unblock(deaf))

    def do_read_group(self, rng: Random) -> None:
        """
        An owner sends entries together, in pieces, and the bookies hear no more of it behind a few of them.  Followers
        are asked; then one bookie alone hears the rest, and what is confirmed; from then on it is read everywhere.
        """
        each = self._leading(rng)
        if each is None:
            return
        history, network, timeline = self.history, self.history.world.network, self.history.world.timeline
        handle = self._handle_of(each)
        key = rng.randrange(KEYS)
        links = [(each.process.name, bookie.host) for bookie in history.bookies]
        first = rng.choice(links)
        whole, network.fragmenting = network.fragmenting, 1.0
        history.seen["entries sent together were cut apart"] += 1

        def append() -> None:
            if each.works and handle.owner is not None and not each.process.frozen and not history.is_quiet:
                history.append(handle, handle.values(rng, 1, rng.choice((8, 300))))

        def block() -> None:
            network.fragmenting = whole
            for link in links:
                network.block(*link)
            self._ask_everywhere("index", key)
            timeline.at(0.005, append)
            timeline.at(0.01, lambda: network.unblock([first]))
            for wait_s in ASKED_S:
                timeline.at(0.02 + wait_s, partial(self._ask_everywhere, "lease", key))
            timeline.at(rng.choice((0.2, 0.6)), lambda: network.unblock(links))

        for _ in range(5):
            append()
        timeline.at(network.latency + rng.random() * 2 * (network.latency + network.jitter), block)

    def _ask_everywhere(self, mode: str, key: int) -> None:
        if self.history.is_quiet:
            return
        for each in self.standing:
            if each.works and not each.process.frozen and sum(not job.over for job in self.jobs) < READS_MAX:
                self.read(each, mode, key, 0)

    # -- the end ---------------------------------------------------------------------------------------------------

    def make_way(self) -> None:
        """Faults are over: what was asked is answered, and nobody stands for the log any more."""
        history = self.history
        history.until("a replica hangs", lambda: all(each.asked.over for each in self.standing if each.stands))
        history.until("a read hangs", lambda: all(job.over for job in self.jobs))
        self._close([each for each in self.standing if each.stands])

    def finish(self) -> None:
        """
        The log has an owner: every follower is read, and ends.  One may have begun only now: where a repair has closed
        a dead owner's ledger, what was confirmed before is read once the next owner has ended the segment.
        """
        history = self.history
        history.until("a replica hangs", lambda: all(each.asked.over for each in self.standing))
        for each in self.standing:
            if each.works and not each.stands:
                last = [self.read(each, "index", 0, 0)]

                def read(each: Standing = each, last: list[Job] = last) -> bool:
                    if last[0].done and last[0].error is not None and each.works:
                        last[0] = self.read(each, "index", 0, 0)
                    return last[0].over and (last[0].error is None or not each.works)

                history.until("no read after the quiet has an answer", read)
        self._close([each for each in self.standing if not each.stands])

    def _close(self, some: Sequence[Standing]) -> None:
        closing = [each.process.ask(each.replica.close()) for each in some if each.works and each.replica]
        self.history.until("the close of a replica hangs", lambda: all(job.over for job in closing))

    def judge(self, values: Sequence[bytes]) -> None:
        """
        What the log holds in the end tells which appends without an answer took effect, and in which order all of them
        did: a register is the place of its newest value in the log.
        """
        places: dict[bytes | None, int] = {None: 0}
        for value in values:
            places[value] = len(places)
        before = dict.fromkeys(values, 0)
        newest = dict.fromkeys(range(KEYS), 0)
        for value in values:
            before[value], newest[key_of(value)] = newest[key_of(value)], places[value]
        calls = [
            Call(begun, NEVER, key_of(value), ("write", before[value], places[value]), True)
            for value, begun in self.written.items()
            if value in places
        ]
        for call in self.calls:
            if call.what[0] == "read":
                calls.append(call._replace(answer=places.get(call.answer, -1)))
            else:
                value = call.what[1]
                calls.append(call._replace(what=("write", before[value], places[value]), answer=True))
        broken = first_broken(calls, in_order, 0)
        if broken is not None:
            text = "; ".join(f"{call.begin:.4f}-{call.end:.4f} {call.what} {call.answer!r}" for call in broken)
            raise Violation("linearizable", f"no order explains the calls of key {broken[0].key}: {text}")
