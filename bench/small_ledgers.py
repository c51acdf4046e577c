"""
Many small ledgers, read by a task's reader of Spark's tables, and by an ordinary asyncio program.

Knows: both ways, each of which takes what it costs of this process.  Does not know: Spark's session, what is wanted.
"""

import asyncio
from collections.abc import Iterator, Sequence

from bench.scripts import Timed
from quire.client import aio
from quire.client.api import Client
from quire.conf.pipeline import LedgerReading
from quire.metadata.store import at_once
from quire.pipeline.reading.ledgers import SCHEMA
from quire.pipeline.sources.ledger import LedgerReader

# SPDX-License-Identifier: Apache-2.0

ENTRIES, ENTRY = 20, 100
UNDER_WAY = 16  # ledgers of the asyncio program; 64 are not faster


async def written(client: Client, count: int) -> list[int]:
    """The ids of so many closed ledgers, ascending."""
    made: list[int] = []
    left = iter(range(count))

    async def some() -> None:
        for _ in left:
            writer = await client.create_ledger()
            await writer.append_many([bytes(ENTRY)] * ENTRIES)
            await writer.close()
            made.append(writer.id)

    await at_once([some() for _ in range(UNDER_WAY)])
    return sorted(made)


def by_tasks(uri: str, ledgers: Sequence[int]) -> Timed:
    """All columns, planned and read in this process, one task after the other: what Spark's processes do of ours."""
    names = ",".join(map(str, ledgers))
    with Timed() as run:
        reader = LedgerReader(LedgerReading.of({"metadata": uri, "ledgers": names}), list(SCHEMA))
        rows = sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))
    assert rows == ENTRIES * len(ledgers)
    return run


def by_asyncio(uri: str, ledgers: Sequence[int]) -> Timed:
    """All entries, some ledgers at a time, by a client that is connected."""
    return asyncio.run(_by_asyncio(uri, ledgers))


async def _by_asyncio(uri: str, ledgers: Sequence[int]) -> Timed:
    left = iter(ledgers)
    async with aio.connect(uri) as bk:
        await bk.metadata(ledgers[0])
        with Timed() as run:
            rows = sum(await asyncio.gather(*(_read(bk, left) for _ in range(UNDER_WAY))))
    assert rows == ENTRIES * len(ledgers)
    return run


async def _read(bk: aio.Client, left: Iterator[int]) -> int:
    rows = 0
    for ledger in left:
        async with await bk.open_ledger(ledger, recover=False) as reader:
            rows += len(await reader.read(0, reader.last_entry_id))
    return rows
