"""
The end of a log that is in use: terminated, deleted, and a new one of its name, by processes that die on the way.

An owner appends, a publisher commits meanwhile.  Whoever ends the log is tried again by another process until it is
done; then nothing of the log may be left, and nobody who knew it may reach the new one.
"""

from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any

from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogTerminated, NoSuchLog
from tests.metadata.stored import records
from tests.simulation.log_nodes import Job, LogProcess
from tests.simulation.truth import Violation

if TYPE_CHECKING:
    from tests.simulation.log_history import Handle, LogHistory

NAME = "orders"
LONG_AGO_S = -10 * 86_400.0
TRIES = 6
FAULTY_TRIES = 3  # the first ones, in which anything may fail
MOMENTS_S = (0.0, 0.02, 0.1, 0.4)


def finish(history: "LogHistory", rng: Random) -> None:
    """`Violation`."""
    handle = history.take_over(history.new_process(), force=True)
    if rng.random() < 0.5:
        terminated(history, handle, rng)
    early = rng.random() < 0.5
    path = unnamed(history, handle, rng)
    if early:  # while the former one is still there
        answered(history, handle)
        again(history)
    removed(history, handle, rng, path)
    if not early:
        again(history)


def use(history: "LogHistory", handle: "Handle", rng: Random) -> None:
    """What goes on meanwhile."""
    for _ in range(rng.randint(0, 3)):
        if handle.owns:
            history.append(handle, handle.values(rng, rng.randint(1, 6), 20))
        if rng.random() < 0.3:
            history.publishers.do_part(rng)
        if rng.random() < 0.3:
            history.publishers.do_commit(rng)
        history.let_pass(rng.choice(MOMENTS_S))


def tried(
    history: "LogHistory",
    handle: "Handle",
    rng: Random,
    procedure: str,
    end: Callable[[LogProcess], Awaitable[Any]],
) -> None:
    """Until it has succeeded: the first ones who do it may be killed at each step, and meet a store that fails."""
    for number in range(TRIES):
        process = history.new_process()
        if number < FAULTY_TRIES:
            history.let_fail(process)
            if rng.random() < 0.8:
                history.doom_at(procedure, rng)
        use(history, handle, rng)
        job = process.ask(end(process))
        use(history, handle, rng)
        history.until(f"{procedure}: a call hangs", lambda job=job: job.over)
        history.doom = None
        if not process.alive:
            continue
        if job.error is None or isinstance(job.error, NoSuchLog):
            return
        history.check_error(job, procedure)
        history.world.tell(f"{procedure} failed: {job.error!r}")
        history.seen[f"{procedure} failed {job.code}"] += 1
    raise Violation("ends", f"{procedure} does not succeed")


def answered(history: "LogHistory", handle: "Handle") -> None:
    """Every call has its answer."""
    history.until(
        "a call hangs that was made while the log ended",
        lambda: all(job.over for _values, job in handle.appends) and history.publishers.all_answered(),
    )


def refused(history: "LogHistory", handle: "Handle", rng: Random) -> None:
    """The former owner has learned it, and can't append any more."""
    answered(history, handle)
    if not handle.owns or handle.owner is None:
        return

    def told(job: Job) -> None:
        if job.error is None:
            history.truth.break_("ends", "an append to a log that has ended was acknowledged")

    owner = handle.owner
    history.until("an owner of a log that has ended does not learn it", lambda: owner.lost)

    async def late() -> None:
        await owner.append(handle.values(rng, 1, 8)[0])

    job = handle.process.ask(late(), told)
    history.until("an append to a log that has ended hangs", lambda: job.over)


def terminated(history: "LogHistory", handle: "Handle", rng: Random) -> None:
    """It takes nothing more, and all of it can be read."""
    tried(history, handle, rng, "end", lambda process: process.logs.terminate(NAME))
    refused(history, handle, rng)
    truth = history.log_truth
    if truth.manifest is None or truth.manifest["state"] != "terminated":
        raise Violation("ends", f"the log was terminated and is {truth.manifest}")
    process = history.new_process()
    owning = process.ask(process.logs.own(NAME, force=True))
    reading = history.read(process, "begin", follow=False)
    history.until("a terminated log can't be read", lambda: reading.over and owning.over)
    assert reading.job is not None
    if not isinstance(owning.error, LogTerminated) or reading.job.error is not None:
        raise Violation("ends", f"of a terminated log: {owning.error!r}, {reading.job.error!r}")
    truth.reckon(reading.values)
    history.seen["log terminated"] += 1


def unnamed(history: "LogHistory", handle: "Handle", rng: Random) -> str:
    """Nobody finds it any more by its name; where its records are."""
    history.deleted = True
    tried(history, handle, rng, "delete", lambda process: process.logs.delete(NAME))
    return history.log_truth.path


def removed(history: "LogHistory", handle: "Handle", rng: Random, path: str) -> None:
    """Nothing is left of it."""
    truth = history.log_truth

    async def remove(process: LogProcess) -> None:
        await process.logs.tidy()
        if path in records(history.world.shared):
            raise LedgerError("something of the log is left")

    tried(history, handle, rng, "delete", remove)
    refused(history, handle, rng)
    last = history.new_process()
    job = last.ask(history.orphans(last, LONG_AGO_S))
    history.until("the search for orphans hangs", lambda: job.over)
    left = records(history.world.shared)
    kept = [each for each in left if each.startswith(path) or (each.startswith("adopted/") and each[-3] != "/")]
    log = path.rpartition("/")[2]
    ledgers = [ledger for ledger in truth.ledgers if truth.tags[ledger].get("quire/log") == log]
    if kept or ledgers or job.error is not None:
        raise Violation("no leak", f"of a deleted log there are {kept} and the ledgers {ledgers}: {job.error!r}")
    history.seen["log deleted"] += 1


def again(history: "LogHistory") -> None:
    """A new log of the same name has what was appended to it, and nothing else."""
    truth = history.log_truth
    truth.begin_again()
    process = history.new_process()
    made = process.ask(process.logs.create(NAME))
    history.until("a log can't be made again", lambda: made.over)
    if made.error is not None:
        raise Violation("ends", f"a log can't be made again: {made.error!r}")
    handle = history.take_over(process, force=False)
    values = [b"new.%d" % number for number in range(5)]
    history.append(handle, values)
    history.until("an append to a new log hangs", lambda: handle.appends[-1][1].over)
    history.close(handle, history.leave(handle))
    history.until("a close hangs", lambda: handle.closing[-1].over)
    reading = history.read(process, "begin", follow=False)
    history.until("a new log can't be read", lambda: reading.over)
    if reading.values != values:
        raise Violation("one sequence", f"a new log holds {reading.values}, {values} were appended")
    history.seen["log made again"] += 1
