"""
`python -m bench.messages`: what message stores cost beside what they stand on; rows of `make bench` whose names begin
with "messages".

    python -m bench.messages                              three bookies of its own, all rows
    python -m bench.messages --metadata URI --only plan   on bookies that run; rows whose name contains the words
    python -m bench.messages --quick --pairs 2            a tenth of the work: shows that it runs, not how fast

Every row is pairs of runs by turns in one process: its ratio is the median over the pairs.  The directory that is
planned and imported has files of 64 MiB with bodies of 4 KiB.  A plan takes some 1.3 us a record beside its sums, so
with bodies of 1 KiB it is twice as far from sha1sum.
"""

import argparse
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from twisted.internet import task
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.threads import deferToThread

from bench.ratios import Comparison
from bench.scripts import Pair, PairRows, Timed, asked, folder, report, row_options
from bench.sides import Quire
from quire.log.api import connect
from quire.messages.core.layout import FILLER_BYTES, file_name, filler
from quire.messages.core.record import Host, pack
from quire.messages.rocketmq.importing import Importing, planned
from quire.messages.rocketmq.plan import make_plan
from quire.messages.rocketmq.source import Tree, Wanted

# SPDX-License-Identifier: Apache-2.0

MIB = 1 << 20
FILE_BYTES, BODY_BYTES = 64 * MIB, 4 << 10
HOST = Host(b"\x7f\0\0\1", 10911)
PROPERTIES = b"UNIQ_KEY\x01%032X\x02KEYS\x01k%d\x02TAGS\x01TagA\x02"
PIECE_BYTES, UNDER_WAY = MIB, 8


def write_store(root: Path, size: int) -> list[Path]:
    """A plain store directory with about so many bytes of records, whose files are full but for the last."""
    directory, files, number = root / "commitlog", [], 0
    directory.mkdir(parents=True)
    body = bytes(range(256)) * (BODY_BYTES // 256)
    for begin in range(0, size, FILE_BYTES):
        content = bytearray()
        while begin + len(content) < size:
            record = pack(
                f"topic{number % 4}",
                body,
                queue=number % 8,
                queue_offset=number // 8,
                offset=begin + len(content),
                born_host=HOST,
                store_host=HOST,
                properties=PROPERTIES % (number, number),
            )
            if len(content) + len(record) + FILLER_BYTES > FILE_BYTES:
                content += filler("plain", FILE_BYTES - len(content))
                break
            content += record
            number += 1
        files.append(directory / file_name(begin))
        with files[-1].open("wb") as file:
            file.write(content)
            file.truncate(FILE_BYTES)
    return files


class Rows(PairRows):
    """The rows of message stores.  `directory`: where a store can be made."""

    def __init__(
        self, reactor: Any, uri: str, directory: Path, pairs: int, share: float, wanted: Callable[[str], bool]
    ) -> None:
        super().__init__(pairs, share, wanted)
        self._reactor = reactor
        self._uri = uri
        self._root = directory / "store"

    async def all(self) -> None:
        """Every row."""
        plan, imported = "messages plan, bodies of 4 KiB / sha1sum", "messages import / copying the files to a ledger"
        if self.wanted(plan) or self.wanted(imported):
            files = write_store(self._root, self.some(256 * MIB, 1))
            await self._row(plan, 1.5, "s", lambda: self._plan(files), at_most=True)
            await self._row(imported, 0.6, "MiB/s", lambda: self._import(files))

    async def _row(
        self, name: str, goal: float, unit: str, pair: Callable[[], Awaitable[Pair]], at_most: bool = False
    ) -> None:
        found: list[Pair] = []
        for _ in range(self.pairs if self.wanted(name) else 0):
            found.append(await pair())
            self.say(name, found, unit)
        if found:
            self.add(name, found, goal, unit, at_most)

    async def _plan(self, files: list[Path]) -> Pair:
        with Timed() as theirs:
            subprocess.run(["sha1sum", *files], stdout=subprocess.DEVNULL, check=True)
        with Timed() as ours, Tree() as tree:
            make_plan(tree, Wanted((str(self._root),)))
        return ours.seconds, theirs.seconds

    async def _import(self, files: list[Path]) -> Pair:
        logs = await connect(self._reactor, self._uri)
        try:
            with Tree() as tree:
                plan = await planned(logs, tree, Wanted((str(self._root),)), lambda *_each: None)
                name = f"{logs.bk.random.getrandbits(64):016x}"
                with Timed() as ours:
                    await Importing(logs, tree, name, plan).run()
            with Timed() as theirs:
                writer = await logs.bk.create_ledger()
                sent: deque[Deferred[int]] = deque()
                for walked in plan.files:
                    with open(walked.file.path, "rb") as file:
                        left = walked.end - walked.file.begin
                        while left:
                            piece = await deferToThread(file.read, min(PIECE_BYTES, left))
                            left -= len(piece)
                            sent.append(writer.append(piece))
                            while len(sent) >= UNDER_WAY:
                                await sent.popleft()
                while sent:
                    await sent.popleft()
                await writer.close()
        finally:
            await logs.close()
        return plan.value_bytes / MIB / ours.seconds, plan.value_bytes / MIB / theirs.seconds


def main() -> int:
    options = row_options(__doc__, "three of its own, over SQLite")
    if options.metadata is not None:
        return run(options, options.metadata)
    with Quire(None) as bookies:
        return run(options, bookies.uri)


def run(options: argparse.Namespace, uri: str) -> int:
    """Measures all that is wanted on these bookies; returns the exit status."""
    rows: list[Comparison] = []

    async def work(reactor: Any) -> None:
        with folder(None, "messages") as directory:
            found = Rows(reactor, uri, Path(directory), *asked(options))
            await found.all()
            rows.extend(found.rows)

    def begin(reactor: Any) -> "Deferred[None]":
        return ensureDeferred(work(reactor))

    try:
        task.react(begin)
    except SystemExit as end:
        if end.code:
            return int(end.code)
    return report(rows, options.json)


if __name__ == "__main__":
    sys.exit(main())
