"""
What the workers of a soak say of their logs, and the judge of it, which follows while they go on.

A line of a worker's file is an object of JSON, with `log` and one of

    "acked": [[HANDLE, NUMBER, INDEX, COUNT], ...], "t": [T, T]   records are at these indexes; at -1: somewhere
    "failed": ERROR, "handle": H, "first": NUMBER, "records": N   a call that failed
    "saw": INDEX, "names": [NAME, ...]                            the cursor gave these records, HANDLE:NUMBER
    "opened": MARK                                                where the cursor began
    "kept": MARK                                                  what it has stored
    "read": [APPLIED, HASH], "t": [T, T]                          a replica's linearizable read

`t` is when a call began and when it was answered, by a clock that all processes share.  A handle numbers what it
appends, and its records come in that order; so does a producer, and a publisher.  What a call gave is of a handle that
no other life has, so a number that does not rise is a record twice, or one that has changed places.

A log holds what its cursor has not acknowledged, so the cursor sees every record, whatever goes by retention.  What it
saw is kept as runs of numbers, a few bytes a record.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

# SPDX-License-Identifier: Apache-2.0

NEVER_SENT = ("NotOwner", "LogFenced", "BacklogQuota", "TooManyRequests")  # and so not in the log

Event = Mapping[str, Any]


class Broken(AssertionError):
    """A promise that was not kept."""


class Run(NamedTuple):
    """Records of one handle at dense indexes."""

    handle: str
    number: int
    index: int
    count: int


def runs_of(handle: str, first: int, indexes: Sequence[int]) -> list[Run]:
    """Joins the indexes of a handle's records where they are dense; -1 is joined with nothing."""
    runs: list[Run] = []
    for number, index in enumerate(indexes, first):
        last = runs[-1] if runs else None
        if last is not None and 0 <= last.index == index - last.count:
            runs[-1] = last._replace(count=last.count + 1)
        else:
            runs.append(Run(handle, number, index, 1))
    return runs


def seen_runs(first: int, names: Iterable[str]) -> list[Run]:
    """Joins records that a reader was given."""
    runs: list[Run] = []
    for index, name in enumerate(names, first):
        handle, _, number = name.rpartition(":")
        last = runs[-1] if runs else None
        if last is not None and handle == last.handle and int(number) == last.number + last.count:
            runs[-1] = last._replace(count=last.count + 1)
        else:
            runs.append(Run(handle, int(number), index, 1))
    return runs


def chained(state: str, name: str) -> str:
    """A hash over all records, behind one more."""
    return sha256(f"{state}{name}".encode()).hexdigest()[:16]


class LogTruth:
    """One log, as its cursor saw it, and what else was said of it."""

    def __init__(self, name: str, chained: bool = False) -> None:
        self.name = name
        self.end = 0  # of what was seen
        self.acked = self.denied = self.reads = 0
        self.pending: list[Run] = []  # acknowledged, and not seen yet
        self._starts: list[int] = []
        self._runs: list[Run] = []
        self._last: dict[str, int] = {}  # handle -> its highest number that was seen
        self._kept = 0  # the cursor's mark, as stored
        self._denied: list[Run] = []
        self._chain: list[str] | None = [""] if chained else None
        self._states: list[tuple[int, str]] = []
        self._known: list[tuple[float, int]] = []  # when an end of the log was known to somebody
        self._asked: list[tuple[float, int]] = []  # when a read began, and what it was answered

    def hear(self, event: Event) -> None:
        """Takes one line; `Broken`."""
        if "acked" in event:
            runs = [Run(*run) for run in event["acked"]]
            self.acked += sum(run.count for run in runs)
            self.pending += [run for run in runs if not self._is_there(run)]
            if self._chain is not None:
                insort(self._known, (event["t"][1], max(run.index + run.count for run in runs)))
        elif "failed" in event:
            if event["failed"] in NEVER_SENT and not event["handle"].startswith("p-"):  # a resend may find it
                self.denied += event["records"]
                self._denied.append(Run(event["handle"], event["first"], -1, event["records"]))
        elif "saw" in event:
            self._see(event["saw"], event["names"])
        elif "opened" in event:
            if event["opened"] < self._kept:
                raise Broken(f"{self.name}: the cursor begins at {event['opened']}, and had stored {self._kept}")
            if event["opened"] > self.end:
                raise Broken(f"{self.name}: the cursor begins at {event['opened']}, and had been given {self.end}")
        elif "kept" in event:
            self._kept = max(self._kept, event["kept"])
        elif "read" in event:
            self.reads += 1
            self._states.append(tuple(event["read"]))
            self._asked.append((event["t"][0], event["read"][0]))

    def _see(self, first: int, names: Sequence[str]) -> None:
        if first > self.end:
            raise Broken(f"{self.name}: the cursor was given {first} behind {self.end}: records are passed over")
        again, new = names[: self.end - first], names[self.end - first :]
        for index, name in enumerate(again, first):
            if name != self.at(index):
                raise Broken(f"{self.name}: record {index} was {self.at(index)}, and is {name} now")
        for run in seen_runs(first + len(again), new):
            last = self._last.get(run.handle, -1)
            if run.number <= last:
                raise Broken(f"{self.name}: {run} comes behind {last} of the same handle: twice, or out of order")
            self._last[run.handle] = run.number + run.count - 1
            self._starts.append(run.index)
            self._runs.append(run)
        self.end += len(new)
        if self._chain is not None:
            for name in new:
                self._chain.append(chained(self._chain[-1], name))
        self.pending = [run for run in self.pending if not self._is_there(run)]

    def at(self, index: int) -> str:
        """The name of a record that was seen."""
        run = self._runs[bisect_right(self._starts, index) - 1]
        return f"{run.handle}:{run.number + index - run.index}"

    def _is_there(self, run: Run) -> bool:
        """False while it was not seen; `Broken` where another record is."""
        if run.index < 0:  # a resend, of which it is known only that it is there
            return run.number <= self._last.get(run.handle, -1) and self._is_somewhere(run)
        if run.index + run.count > self.end:
            return False
        for offset in range(run.count):
            found, name = self.at(run.index + offset), f"{run.handle}:{run.number + offset}"
            if found != name:
                raise Broken(f"{self.name}: {name} was acknowledged at {run.index + offset}, where {found} is")
        return True

    def _is_somewhere(self, run: Run) -> bool:
        mine = (each for each in reversed(self._runs) if each.handle == run.handle)
        if any(each.number <= run.number < each.number + each.count for each in mine):
            return True
        raise Broken(f"{self.name}: {run.handle}:{run.number} was told to be a duplicate, and is nowhere")

    def close(self) -> None:
        """Holds what remains against all that was seen, once the cursor is at the end; `Broken`."""
        if self.pending:
            raise Broken(f"{self.name}: {self.pending[0]} was acknowledged, and the log ends at {self.end}")
        of_handle: dict[str, list[Run]] = {}
        for run in self._runs:
            of_handle.setdefault(run.handle, []).append(run)
        for denied in self._denied:
            for run in of_handle.get(denied.handle, ()):
                if run.number < denied.number + denied.count and denied.number < run.number + run.count:
                    raise Broken(f"{self.name}: {denied} failed as never sent, and {run} is there")
        for applied, state in self._states:
            assert self._chain is not None
            if applied >= len(self._chain) or self._chain[applied] != state:
                raise Broken(f"{self.name}: a replica's state behind {applied} records is not the log's")
        self._in_time()

    def _in_time(self) -> None:
        ends, highest = [], 0
        for _, end in self._known:
            highest = max(highest, end)
            ends.append(highest)
        for begun, applied in self._asked:
            before = bisect_left(self._known, (begun, 0))
            if before and ends[before - 1] > applied:
                raise Broken(f"{self.name}: a read at {begun} knows {applied} records of {ends[before - 1]}")


class Truth:
    """All logs."""

    def __init__(self, logs: Mapping[str, bool]) -> None:
        self.logs = {name: LogTruth(name, chained) for name, chained in logs.items()}
        self.broken: list[str] = []
        self.failures: Counter[str] = Counter()

    def hear(self, event: Event) -> None:
        """Takes a line of a worker's file."""
        try:
            if event["log"]:
                self.logs[event["log"]].hear(event)
        except Broken as broken:
            self.broken.append(str(broken))
        if "failed" in event:
            self.failures[f"append {event['failed']}"] += 1
        elif "trouble" in event:
            self.failures[f"{event['doing']} {event['trouble']}"] += 1

    def close(self) -> None:
        """All has been heard."""
        for log in self.logs.values():
            try:
                log.close()
            except Broken as broken:
                self.broken.append(str(broken))

    def counts(self) -> dict[str, int]:
        """How much was acknowledged, seen, and is acknowledged but not seen yet."""
        logs = self.logs.values()
        return {
            "acked": sum(log.acked for log in logs),
            "seen": sum(log.end for log in logs),
            "pending": sum(run.count for log in logs for run in log.pending),
            "denied": sum(log.denied for log in logs),
            "reads": sum(log.reads for log in logs),
        }
