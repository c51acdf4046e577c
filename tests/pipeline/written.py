"""Ledgers and logs for the tests of the pipeline."""

from itertools import count
from typing import Any

from quire.pipeline.clients import Cluster

# SPDX-License-Identifier: Apache-2.0

NAMES = (f"log {number}" for number in count())


def ledger(ours: Cluster, payloads: list[bytes], close: bool = True, password: bytes = b"") -> int:
    """With these entries, all confirmed."""

    async def story() -> int:
        writer = await ours.client.create_ledger(password=password)
        for start in range(0, len(payloads), 100):
            await writer.append_many(payloads[start : start + 100])
        if close:
            await writer.close()
        else:
            await writer.write_lac()
        return writer.id

    return ours.wait(story)


def log(ours: Cluster, values: list[bytes], roll_records: int = 10, **columns: Any) -> str:
    """With these records, in segments of so many."""
    name = next(NAMES)

    async def story() -> None:
        await ours.logs.create(name, roll_records=roll_records)
        owner = await ours.logs.own(name)
        for start in range(0, len(values), 5):
            some = {key: column[start : start + 5] for key, column in columns.items()}
            await owner.append_many(values[start : start + 5], **some)
        await owner.close()

    ours.wait(story)
    return name


def values_of(ours: Cluster, name: str) -> list[bytes]:
    """All that a log has."""

    async def story() -> list[bytes]:
        reader = await ours.logs.read(name)
        found = [value async for batch in reader.batches() for value in batch.values]
        await reader.close()
        return found

    return ours.wait(story)


def entries_of(ours: Cluster, ledger_id: int) -> list[bytes]:
    """All that a ledger has."""

    async def story() -> list[bytes]:
        reader = await ours.client.open_ledger(ledger_id, recover=False)
        found = [payload async for run in reader.runs() for payload in run.payloads]
        await reader.close()
        return found

    return ours.wait(story)
