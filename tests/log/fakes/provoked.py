"""Stories that end with an error of a log, with what its text has to say; and damage that is done by hand."""

import pytest

from quire.log.store.editing import LogRecords
from tests.reactor import reactor

# SPDX-License-Identifier: Apache-2.0

TABLE = []


def provokes(error, *said, **attributes):
    """A story that ends with that error, whose text has these words and whose attributes these values."""

    def add(story):
        TABLE.append(pytest.param(story, error, said, attributes, id=f"{error.__name__}: {story.__doc__}"))
        return story

    return add


async def records_of(logs):
    """Those of the log."""
    id_ = (await logs.info("a")).id
    return LogRecords(logs.bk.store.records, reactor, logs.bk.random, lambda: 1700.0, id_, "a")


async def changed(logs, **members):
    """Writes the manifest with other members, as another version of quire might, or a broken one."""
    log = await records_of(logs)
    data, version = await log.records.read(log.path)
    text = data.decode()
    for old, new in members.values():
        assert old in text, f"{old} in {text}"
        text = text.replace(old, new)
    await log.records.write(log.path, text.encode(), version)


async def changed_entry(logs, entry):
    """Another entry in place of the only one of the log."""
    owner = await logs.own("a")
    await owner.append(b"x")
    ledger = (await logs.info("a")).ledger
    await owner.close()
    other = await logs.bk.create_ledger()
    await other.append(entry)
    await other.close()
    await changed(logs, ledger=(f'"ledger":{ledger},', f'"ledger":{other.id},'))


async def one_part(logs, sink, batch=0, number=0):
    """A closed part of one record."""
    part = await sink.part(batch, number, 0)
    await part.append_many([b"x"])
    return await part.close()


async def lost_ledger(logs):
    """The ledger of the open segment, which is deleted by hand."""
    ledger = (await logs.info("a")).ledger
    await logs.bk.recover_ledger(ledger)
    await logs.bk.delete_ledger(ledger)
    return ledger
