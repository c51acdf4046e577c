"""
The names of all logs.

Knows: that they are in shards.  Does not know: what is behind a name.
"""

from collections.abc import AsyncGenerator

from quire.log.store.paths import decoded
from quire.metadata.records import NoRecord, Records
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0

SHARDS = 256


async def log_names(records: Records) -> AsyncGenerator[str, None]:
    """By shard, then by name; a page of them is asked for at a time."""
    for number in range(SHARDS):
        after = ""
        while True:
            try:
                page = await records.children(f"names/{number:02x}", after)
            except NoRecord:
                break
            if not page:
                break
            for part in page:
                yield decoded(part)
            after = page[-1]


async def refuse(records: Records) -> None:
    """`LogError` while a log has a name, for who is about to remove all records."""
    async for name in log_names(records):
        raise LogError(
            f"there are named logs, {name!r} is one; nothing was removed. `quire log list` shows them, --with-logs "
            "removes them, too"
        )
