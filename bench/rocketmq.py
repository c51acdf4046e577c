"""
Message stores beside RocketMQ in DLedger mode: three bookies with a ZooKeeper and a master's process beside three
brokers of one group with a name server and a client's process, all on this machine.

    python -m bench.rocketmq --size 1024 --calls 64             messages one a call
    python -m bench.rocketmq --failover yes --session 4000      from SIGKILL of the master to the next acknowledged one
    python -m bench.rocketmq --size 1024 --alone                ours only, where no Maven is

The brokers have the settings of the tests (threads for a small machine) with larger files and time for what waits, and
acknowledge what is in the page cache of two of them.  Ours acknowledges what is on the disks of two bookies; the master
makes its rows meanwhile.  RocketMQ's client sends over the network, ours puts in the master's process.  Prints one JSON
line with every run.
"""

import argparse
import contextlib
import os
import pathlib
import sys
import time
from collections.abc import Iterator

from bench.dledger import Made, cluster, failovers, measured
from bench.scripts import folder as temporary
from bench.scripts import words
from bench.sides import Run, arguments, reported
from quire.tools.local_cluster.cluster import STORES
from tests.interop.peer import PeerError
from tests.interop.rocketmq.broker import RocketMQ
from tests.interop.rocketmq.group import Group

# SPDX-License-Identifier: Apache-2.0

TOPIC = "T"
SIZES = {
    "mappedFileSizeCommitLog": 1 << 27,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 500_000,
    "maxIndexNum": 2_000_000,
    "waitTimeMillsInSendQueue": 10_000,
}
WARM_UP = {"topic": TOPIC, "size": 1024, "count": 20_000, "calls": 64}  # not counted
WARM_UP_TRIES_MAX = 5  # the first messages of a cold group may be answered too late, and fail
COMPILED = ("-XX:TieredStopAtLevel=4",)  # the tests' brokers are compiled for a quick start


@contextlib.contextmanager
def group(directory: str | None) -> Iterator[tuple[RocketMQ, Group]]:
    with temporary(directory, "rocketmq") as root, RocketMQ(pathlib.Path(root), COMPILED) as peer:
        yield peer, Group(peer, TOPIC, SIZES)


# -- puts --------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def our_puts(words: argparse.Namespace) -> Made:
    with cluster(words) as bookies:
        load = {"size": words.size, "entries": words.entries, "calls": words.calls}
        yield lambda: reported(os.environ, "bench.mastered", "put", *arguments({"metadata": bookies.uri, **load}))


@contextlib.contextmanager
def their_puts(words: argparse.Namespace) -> Made:
    load = {"topic": TOPIC, "size": words.size, "count": words.entries, "calls": words.calls}
    with group(words.directory) as (peer, _group):
        for turn in range(WARM_UP_TRIES_MAX):
            try:
                peer.call("load", **WARM_UP)
                break
            except PeerError:
                if turn == WARM_UP_TRIES_MAX - 1:
                    raise
        yield lambda: dict(peer.call("load", **load)[0])


# -- failovers ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def our_failovers(words: argparse.Namespace) -> Made:
    with cluster(words) as bookies, temporary(words.directory, "rows") as rows:
        command = [sys.executable, "-m", "bench.mastered", "stand", f"--metadata={bookies.uri}", "--store=failover"]
        command.append(f"--session-ms={words.session}")
        with failovers(lambda number: [*command, f"--rows={rows}/{number}"]) as run:
            yield run


@contextlib.contextmanager
def their_failovers(words: argparse.Namespace) -> Made:
    with group(words.directory) as (peer, brokers):

        def run() -> Run:
            master = brokers.master()
            peer.call("busy", topic=TOPIC)
            begun = time.monotonic()
            brokers.kill(master)
            peer.call("resumed")
            found = time.monotonic() - begun
            brokers.start(master)
            return {"failover_s": round(found, 3)}

        yield run


def main() -> None:
    yes_or_no = {"choices": ("yes", "no")}
    options = words(
        __doc__,
        size=(1024, "bytes of a body"),
        calls=(64, "messages under way"),
        entries=(20_000, "messages of a run"),
        sync={**yes_or_no, "default": "yes", "help": "whether our bookies sync their journals"},
        failover={**yes_or_no, "default": "no", "help": "failovers and no rates"},
        session=(10_000, "of our masters at the metadata store, ms"),
        store={"choices": STORES, "default": "zookeeper", "help": "our metadata"},
        pairs=5,
        alone=False,
        directory=None,
    )
    ours, theirs = (our_failovers, their_failovers) if options.failover == "yes" else (our_puts, their_puts)
    measured(options, {"messages": ours} if options.alone else {"messages": ours, "java rocketmq": theirs})


if __name__ == "__main__":
    main()
