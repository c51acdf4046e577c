"""
Many histories: one after the other, on several processes, for so many seeds or so many seconds; and what they reached.

A sweep fails when a promise was broken, and also when it was long enough to meet every rare case and missed one: a
simulator that no longer reaches a danger says nothing about it.
"""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.simulation.history import History
from tests.simulation.log_history import POINTS, PROCEDURES
from tests.simulation.messages_history import POINTS as OF_STORES
from tests.simulation.plan import PROFILES, Plan, Profile, Step, draw
from tests.simulation.replaying import replay
from tests.simulation.truth import Violation

MIXED = (
    "mix",
    "mix",
    "recovery",
    "late add",
    "new ensemble",
    "change",
    "power",
    "dark start",
    "limbo",
    "tail",
    "store",
    "no spare",
    "deferred",
    "large ids",
    "everything",
    "repair",
    "garbage",
    "surplus",
    "clocks",
    "new index",
    "out of order",
    "moves",
    "restore",
    "counted on",
    "counted on",
    "healing",
    "healing limbo",
    "healing unseen",
    "healing restarts",
    "drain",
    "drain faults",
    "emptied",
    "returns",
    "log mix",
    "log takeover",
    "log publish",
    "log late",
    "log end",
    "log producers",
    "log trim",
    "log replica",
    "log lease",
    "log cursors",
    "log compact",
    "log merge",
    "log settings",
    "messages",
    "log partitions",
    "log mirror",
    "messages import",
)
ENOUGH = 10_000  # histories after which every rare case must have been met
ENOUGH_FOR_POINTS = 100_000  # the same for a kill at each single step of a log's process

# What must have happened at least once in a sweep of `ENOUGH` histories: of those of logs, and of all others.
OF_LOGS = (
    "a request landed late", "abort beside a commit", "append failed: AppendUnknown", "append failed: LogFenced",
    "append failed: NotOwner", "batch aborted", "batch published", "batch published again",
    "batch published beside an owner", "chunk named", "clock jumped", "commit failed -306", "commit failed -309",
    "commit failed -310", "empty segment doomed",
    "entry that was asked for once for several", "handed over", "janitor took a part", "large append",
    "ledger taken in", "log compacted", "log deleted", "log merged", "log made again", "log read", "log terminated",
    "log taken over", "log trimmed", "metadata answer lost", "new run", "odd answer of the store", "orphan deleted",
    "open ledger recovered from outside",
    "owner crashed", "ownership forced", "part failed -306", "part of several ledgers", "process frozen",
    "session expired",
    "log grew", "owner of partitions crashed", "partitions owned", "sent again",
    "both logs take appends", "divergence refused", "mirror crashed", "switch: done", "went over and back",
    "barrier read", "proposal answered", "snapshot loaded", "snapshot named", "trim refused by a hold",
    "session of a frozen process ended", "tail at the end of the log", "tail through days of silence",
    "trapped at open.created", "usurped", "two handles of one process", "zombie task",
    *(f"killed in {procedure}" for procedure in PROCEDURES if procedure != "orphan"),
)  # fmt: skip
OF_MESSAGES = (
    "became master", "group acknowledged", "import ended", "killed in dispatch", "killed in import",
    "offset committed", "open failed: RowsForeign", "open failed: UnknownFormat",
    "put acknowledged", "put before it leads", "put failed: AppendUnknown",
    "put failed: LogFenced", "put failed: MessageIllegal", "put failed: NotOwner", "put failed: NotReady",
    "read: bounds", "read: get", "read: id", "read: pull", "read: query", "reached rebuild.deleted",
    "reached trim.rows", "rows beyond", "rows foreign", "rows garbled", "rows gone", "rows newer", "rows older",
    *(f"takeover: {how}" for how in ("close", "crash", "expire", "force", "freeze")),
)  # fmt: skip
OF_HEALING = (
    "a cluster was whole again", "a ledger left the queue", "a ledger was marked", "a process crashed",
    "a session was lost", "a session was lost in a repair", "broken in a repair", "it stays, for it was marked again",
    "a bookie restarted that is marked from before", "it lost copies before it was named",
    "it came and went unseen inside its delay",
    "it went as its ledger left the queue", "marked while it is repaired", "the auditor crashed",
)  # fmt: skip
OF_DRAINS = (
    "a bookie was emptied", "a ledger was read meanwhile", "a writer was waited for", "begun", "crashed",
    "its bookie was restarted", "lost its session", "taken back",
)  # fmt: skip
OF_RETURNS = (
    "a bookie came back empty, as a new one", "a bookie came back empty, with a restore",
    "an empty bookie was refused, for a ledger names it", "directories of another incarnation were refused",
)  # fmt: skip
RARE = (
    "add parked", "add refused as read-only", "an id was given twice", "bookie gave up", "bookie joined",
    "bookie refused to serve without its disk",
    "bookie restored in limbo", "bookie without sync doubts itself", "change during recovery",
    "change replaces an empty fragment", "checkpoint",
    "clock jumped", "closed by a recovery", "closed by the writer", "conflict on IN_RECOVERY", "conflict on OPEN",
    "conflict on close", "connection cut",
    "disk destroyed", "empty last fragment at close", "ensemble change", "force refused", "forced", "journal replayed",
    "limbo answer",
    "metadata answer lost", "metadata failed", "metadata slow", "odd answer of the store", "partition",
    "power lost inside a write",
    "process paused", "read past what is confirmed",
    "read-only bookie", "recoverer against writer", "recoverer crashed", "recovery failed",
    "recovery refused: too many bookies in doubt",
    "registration removed by somebody", "unregistered after the session's end",
    "session expired", "several replaced in one change", "sync failed", "tail followed to the close",
    "tail recovered beyond what was confirmed",
    "torn write", "two recoverers", "unacknowledged tail dropped", "bookie came back in limbo",
    "went on without a spare", "writer crashed",
    "writer told that it is fenced", "wrong LAC hint", "bookie at an address that another one had",
    "a day passed", "a listing lied", "a stranger's add",
    "a living bookie lacked copies", "another cluster answered", "clock set back far",
    "clock set forward far",
    "a store denied all ledgers", "an emptied cluster gave its space back",
    "deleted ledger collected", "entry logs compacted", "entry logs removed", "every entry on its whole write quorum",
    "fragment repaired",
    "garbage collection forced", "index rebuilt", "ledger deleted", "limbo ended",
    "power lost inside a round of garbage collection",
    "power lost while an index was rebuilt", "power lost inside a start", "repair begun under faults",
    "repair beside a recovery", "repair crashed", "repair lost its session", "repair of a ledger that is being written",
    "repair paused",
    "rebalance crashed", "rebalance moved a holding",
    "superfluous copy dropped", "two repairs", "tail beside ids out of order",
    "a disk destroyed that a recovery counts on", "a journal lost", "a ledger directory of several lost",
    "an index could not tell what it has",
    "ledger doubted while a bookie serves",
    *(f"healing: {case}" for case in OF_HEALING),
    *(f"drain: {case}" for case in OF_DRAINS),
    *(f"return: {case}" for case in OF_RETURNS),
    *(f"log: {case}" for case in OF_LOGS),
    *(f"log: {case}" for case in OF_MESSAGES),
)  # fmt: skip
KILLS = tuple(f"log: killed at {point}" for point in (*POINTS, *OF_STORES))


@dataclass
class Result:
    """What a sweep found."""

    histories: int = 0
    events: int = 0
    seconds: float = 0.0
    seen: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[Plan, Violation]] = field(default_factory=list)

    @property
    def unmet(self) -> list[str]:
        """What a sweep of so many histories must have met and did not."""
        wanted = (RARE if self.histories >= ENOUGH else ()) + (KILLS if self.histories >= ENOUGH_FOR_POINTS else ())
        return [case for case in wanted if not self.seen[case]]


def profile_of(seed: int, name: str | None) -> Profile:
    """Without a name the seeds go round the profiles."""
    return PROFILES[name or MIXED[seed % len(MIXED)]]


def seen_in(history: History) -> Counter[str]:
    """What it reached; histories of logs have names of their own, for what is rare without a log is not with one."""
    about_logs = history.plan.profile.logs
    return Counter({f"log: {case}": times for case, times in history.seen.items()}) if about_logs else history.seen


def sweep(seeds: Iterable[int], name: str | None = None, seconds: float = float("inf"), broken_max: int = 5) -> Result:
    """Runs these seeds, as many as fit into `seconds`."""
    result = Result()
    start = time.monotonic()
    for seed in seeds:
        plan = draw(profile_of(seed, name), seed)
        history, violation = replay(plan)
        result.histories += 1
        result.events += history.world.timeline.events
        result.seen.update(seen_in(history))
        if violation is not None:
            result.broken.append((plan, violation))
            if len(result.broken) >= broken_max:
                break
        result.seconds = time.monotonic() - start
        if result.seconds >= seconds:
            break
    return result


def every_nth(first: int, step: int) -> Iterator[int]:
    while True:
        yield first
        first += step


def beside(first: int, processes: int, arguments: list[str]) -> list["subprocess.Popen[str]"]:
    """The same sweep in as many processes, each with its own share of the seeds."""
    return [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.simulation",
                "--first",
                str(first + number),
                "--stride",
                str(processes),
                "--processes",
                "1",
                "--json",
                *arguments,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]


def shrink(plan: Plan, violation: Violation, tries: int = 400) -> Plan:
    """The fewest steps found that break the same promise."""
    steps: tuple[Step, ...] = plan.steps
    size = max(1, len(steps) // 2)
    while size and tries > 0:
        at, smaller = 0, False
        while at < len(steps) and tries > 0:
            tries -= 1
            fewer = steps[:at] + steps[at + size :]
            _history, found = replay(plan.with_steps(fewer))
            if found is not None and found.invariant == violation.invariant:
                steps, smaller = fewer, True
            else:
                at += size
        if not smaller:
            size //= 2
    return plan.with_steps(steps)
