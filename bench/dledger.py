"""
Named logs beside DLedger: three bookies with a ZooKeeper and an owner's process beside a group of three members, all on
this machine.

    python -m bench.dledger --size 100 --sync no                records in batches, as many bytes a call on both
    python -m bench.dledger --size 100 --whole yes              a batch is one entry of DLedger's log
    python -m bench.dledger --size 100 --batch 1 --calls 1000   one record a call
    python -m bench.dledger --failover yes --session 4000       from SIGKILL of who appends to the next acknowledged one
    python -m bench.dledger --size 100 --alone                  ours only, where no Maven is

DLedger has its own settings, and acknowledges what is in the page cache of two members; the load calls its leader
inside the leader's process.  Ours acknowledges what is on the disks of two bookies, or, with `--sync no`, what is in
their page cache.  Prints one JSON line with every run.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.scripts import folder as temporary
from bench.scripts import words
from bench.sides import ROOT, RUN_SECONDS_MAX, Run, Spent, arguments, reported, rounds
from quire.tools.local_cluster.cluster import STORES, LocalCluster
from tests.interop.dledger.group import Group
from tests.interop.peer import PeerError

# SPDX-License-Identifier: Apache-2.0

BOOKIES = 3
TOLD = ("entries_per_second", "p50_ms", "p99_ms", "cpu_us_per_entry", "failover_s")
WARM_UP = {"size": 100, "batch": 250, "calls": 16, "entries": 150_000}  # of DLedger, not counted
WARM_UP_TRIES_MAX = 5  # the first calls of a cold group may be answered too late, and fail
AHEAD = 5  # times as many records in a run of ours: one of DLedger takes many times as long
Made = Iterator[Callable[[], Run]]


@contextlib.contextmanager
def cluster(words: argparse.Namespace) -> Iterator[LocalCluster]:
    with temporary(words.directory, "beside") as folder:
        options = {"journalSyncData": "true" if words.sync == "yes" else "false"}
        with LocalCluster(pathlib.Path(folder), BOOKIES, words.store, options) as found:
            yield found


def owning(uri: str, session_ms: int) -> list[str]:
    """The command of an owner's process, or of one that waits."""
    words = ("own", f"--metadata={uri}", "--log=failover", f"--session-ms={session_ms}")
    return [sys.executable, "-m", "bench.owned", *words]


def spent(pids: list[int], entries: int, run: Callable[[], Run]) -> Run:
    """A run, with the CPU of these processes and of its client."""
    with Spent(pids) as used:
        found = run()
    found |= used.figures(entries)
    client = found.get("client_cpu_us_per_entry", 0.0)
    return {**found, "cpu_us_per_entry": round(client + found["bookies_cpu_us_per_entry"], 2)}


# -- appends -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def our_appends(words: argparse.Namespace) -> Made:
    with cluster(words) as bookies:
        entries = AHEAD * words.entries
        load = {"size": words.size, "batch": words.batch, "calls": words.calls, "entries": entries}

        def run() -> Run:
            return reported(os.environ, "bench.owned", "append", *arguments({"metadata": bookies.uri, **load}))

        pids = [pid for bookie in bookies.bookies if (pid := bookie.pid) is not None]
        yield lambda: spent(pids, entries, run)


@contextlib.contextmanager
def their_appends(words: argparse.Namespace) -> Made:
    """`--whole`: a call is one entry of as many bytes as the batch has."""
    records = words.batch if words.whole == "yes" else 1  # of an entry

    with Group(words.directory) as group:

        def run() -> Run:
            load = {"size": words.size * records, "batch": words.batch // records, "calls": words.calls}
            load["entries"] = words.entries // records
            found = group.leader().call("append", RUN_SECONDS_MAX, **load)
            return {**found, "entries_per_second": found["entries_per_second"] * records}

        for turn in range(WARM_UP_TRIES_MAX):
            try:
                group.leader().call("append", RUN_SECONDS_MAX, **WARM_UP)
                break
            except PeerError:
                if turn == WARM_UP_TRIES_MAX - 1:
                    raise
        pids = [member.child.pid for member in group.members.values()]
        yield lambda: spent(pids, words.entries, run)


# -- failovers ---------------------------------------------------------------------------------------------------------


class Owner:
    """A process that owns the log, or waits for it, and has said which."""

    def __init__(self, command: list[str], until: str) -> None:
        self.child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.said(until)

    def said(self, word: str) -> None:
        """Returns once it has said so."""
        assert self.child.stdout is not None
        if self.child.stdout.readline().strip() != word:
            raise RuntimeError(f"an owner's process ended, or did not say {word!r}")

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()


@contextlib.contextmanager
def failovers(command: Callable[[int], list[str]]) -> Made:
    """Kills the owner while another waits.  `command`: of the process of that number."""
    with contextlib.ExitStack() as stack:
        owners: list[Owner] = []

        def another(until: str) -> None:
            owners.append(Owner(command(len(owners)), until))
            stack.callback(owners[-1].kill)

        def run() -> Run:
            another("waits")
            killed, taker = owners[-2:]
            begun = time.monotonic()
            killed.kill()
            taker.said("owns")
            return {"failover_s": round(time.monotonic() - begun, 3)}

        another("owns")
        yield run


@contextlib.contextmanager
def our_failovers(words: argparse.Namespace) -> Made:
    with cluster(words) as bookies:
        command = owning(bookies.uri, words.session)
        with failovers(lambda _number: command) as run:
            yield run


@contextlib.contextmanager
def their_failovers(words: argparse.Namespace) -> Made:
    with Group(words.directory) as group:

        def run() -> Run:
            leader = group.leader()
            leader.call("busy")
            begun = time.monotonic()
            group.kill(leader.id)
            found = group.leads(leader.id)[1] - begun
            group.start(leader.id)
            return {"failover_s": round(found, 3)}

        yield run


def measured(options: argparse.Namespace, sides: Mapping[str, Callable[[argparse.Namespace], Any]]) -> None:
    """Prints every run of these sides, by turns."""
    with contextlib.ExitStack() as stack:
        runs = [stack.enter_context(side(options)) for side in sides.values()]
        for run in runs if options.failover == "no" else ():
            run()  # not counted
        figures: dict[str, list[Run]] = {name: [] for name in sides}
        for number, found in enumerate(rounds(options.pairs, *runs), 1):
            for name, each in zip(sides, found, strict=True):
                figures[name].append(each)
                told = "  ".join(f"{key} {each[key]:,.6g}" for key in TOLD if key in each)
                print(f"  {number}/{options.pairs}   {name}: {told}", file=sys.stderr)
    print(json.dumps({"runs": figures}))


def main() -> None:
    yes_or_no = {"choices": ("yes", "no")}
    options = words(
        __doc__,
        size=(100, "bytes of a record"),
        batch=(250, "records of a call"),
        calls=(16, "under way"),
        entries=(50_000, "records of a run of DLedger"),
        whole={**yes_or_no, "default": "no", "help": "a call is one entry of DLedger"},
        sync={**yes_or_no, "default": "yes", "help": "whether our bookies sync their journals"},
        failover={**yes_or_no, "default": "no", "help": "failovers and no rates"},
        session=(10_000, "of our owners at the metadata store, ms"),
        store={"choices": STORES, "default": "zookeeper", "help": "our metadata"},
        pairs=5,
        alone=False,
        directory=None,
    )
    ours, theirs = (our_failovers, their_failovers) if options.failover == "yes" else (our_appends, their_appends)
    sides = {"log": ours} if options.alone else {"log": ours, "java dledger": theirs}
    measured(options, sides)


if __name__ == "__main__":
    main()
