"""
Message stores for tests: the records of a directory, or made ones, in a log; their rows in dicts that crash or RocksDB.

Knows: the reference reader of directories, and owners whose hook puts each value at its place.
Does not know: imports.
"""

import os
import pathlib
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import pytest

from quire.log.api import Prepared
from quire.messages.core.queues import Placing
from quire.messages.derived.directory import RowsDirectory
from quire.messages.derived.dispatch import Portion
from quire.messages.derived.following import Following
from quire.messages.derived.reads import Reads
from quire.messages.derived.rows import EntryRow
from tests.log.fakes.cluster import cluster
from tests.messages.reference import parser
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0

HOST = (b"\x7f\0\0\1", 10911)
NAME = "orders"
LOG = "6f1c" * 8
ONE_BOOKIE = {"ensemble": 1, "write": 1, "ack": 1}


def few(names):
    """Every third of them now, the others where there is time."""
    return [name if place % 3 == 1 else pytest.param(name, marks=pytest.mark.long) for place, name in enumerate(names)]


class Value(NamedTuple):
    """A value of the log and its place."""

    position: int
    value: bytes


def values_of(directory):
    """All values of a store directory, by the reference."""
    old, groups = parser.parts(directory)
    found = [Value(at, record["raw"]) for kind, at, record in parser.plain(old) if kind == "record"]
    for group in groups:
        for kind, at, head, record in parser.dledger(group / "data"):
            if kind == "entry":
                found.append(Value(at, parser.ENTRY.pack(*head.values()) + record["raw"]))
    return found


def made(records, first=0):
    """
    Values of records that are given as (topic, queue, queue offset, further fields of `parser.pack`), one behind the
    other; `gap` among the fields: bytes that are skipped before.
    """
    found, at = [], first
    for topic, queue, queue_offset, *more in records:
        fields = dict(more[0]) if more else {}
        at += fields.pop("gap", 0)
        body = fields.pop("body", b"body")
        fields = {"store": HOST, "store_ms": 1000 + len(found)} | fields
        raw = parser.pack(topic, body, queue=queue, queue_offset=queue_offset, offset=at, **fields)
        found.append(Value(at, raw))
        at += len(raw)
    return found


def portions(values, a_batch=7, index=0):
    """As a reader would give them: entries of so many values."""
    found = []
    for start in range(0, len(values), a_batch):
        some = values[start : start + a_batch]
        entry = EntryRow(some[0].position, 0, start // a_batch, index + start, len(some))
        found.append(Portion(index + start, [each.position for each in some], [each.value for each in some], entry))
    return found


def cut(portion, at):
    """A portion without its first records, as a reader gives it that begins inside an entry."""
    entry = EntryRow(portion.positions[at], portion.entry.segment, portion.entry.entry, portion.first + at, 0)
    entry = entry._replace(records=portion.entry.records - at)
    return Portion(portion.first + at, portion.positions[at:], portion.values[at:], entry)


async def fill(logs, values, name=NAME, a_batch=7, **settings):
    """A log of that name that holds the values at their places; some at a time are one entry."""
    await logs.create(name, begin_at=values[0].position if values else 0, **ONE_BOOKIE, **settings)
    await more(logs, values, name, a_batch)


async def more(logs, values, name=NAME, a_batch=7):
    """Appends values at their places, by an owner of its own."""
    places = {each.value: each.position for each in values}

    def hook(_index, at, _stamp, given):
        skips = []
        for value in given:
            skips.append(places[value] - at)
            at = places[value] + len(value)
        return Prepared(given, skips)

    owner = await logs.own(name, before_append=hook)
    for start in range(0, len(values), a_batch):
        await owner.append_many([each.value for each in values[start : start + a_batch]])
    await owner.close()


class Dicts:
    """Opens rows in dicts; a directory that was removed has none. `crash` leaves what a disk would have."""

    def __init__(self):
        self.rows = {}

    def __call__(self, path):
        if not os.path.isdir(path):
            os.mkdir(path)
            self.rows.pop(path, None)
        return self.rows.setdefault(path, DictRows())

    def crash(self, kept):
        self.rows = {path: rows.crash(kept) for path, rows in self.rows.items()}

    @property
    def only(self):
        (found,) = self.rows.values()
        return found


class Store:
    """One process with a store: its logs, rows and reads."""

    def __init__(self, logs, following, reads):
        self.logs, self.following, self.reads = logs, following, reads

    async def caught_up(self):
        """All that can be read has rows."""
        end = (await self.logs.find(NAME, 1 << 60)).index
        while self.following.index < end:
            if self.following.failure is not None:
                raise self.following.failure
            await self.following.more(0.05)


async def opened(logs, derived, open_rows=None, placing=None, reached=lambda _name: None, name=NAME):
    """`close` of its `following` is for the caller."""
    id_ = (await logs.info(name)).id
    placing = placing or Placing()
    directory = RowsDirectory(str(derived), id_, open_rows, reached)
    following = Following(logs, name, id_, placing, directory, reached)
    await following.open()
    return Store(logs, following, Reads(logs, name, placing, following))


@asynccontextmanager
async def store(tmp_path: pathlib.Path, values, open_rows=None, placing=None, a_batch=7, **settings):
    """A store with these values, in a cluster of its own; its rows are up to date."""
    async with AsyncExitStack() as stack:
        run = await stack.enter_async_context(cluster(tmp_path / "bookies", bookies=1))
        logs = await run.logs()
        await fill(logs, values, a_batch=a_batch, **settings)
        found = await opened(logs, tmp_path / "derived", open_rows, placing)
        stack.push_async_callback(found.following.close)
        await found.caught_up()
        yield found
