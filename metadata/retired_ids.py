"""
Ids that bookies had until they were taken out of the cluster: a record for each, which stays.

Knows: where a record is, and what it says of when and how.
Does not know: who takes a bookie out, what a start makes of it (`bookie/lifecycle/start_check.py`).

Safety: the record is durable before the cookie goes, so no bookie can begin under the id in between as if it were new.
"""

import json
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import quote

from quire.metadata.formats.json_text import parse_json
from quire.metadata.records import NoRecord, put
from quire.metadata.store import CookieNotFound, WrongCluster
from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

FOLDER = "bookies/retired"
DECOMMISSIONED, FORMATTED = "decommissioned", "formatted"  # what became of it
FORGOTTEN, RENAMED = "given up with its cookie", "given another id"


def path_of(bookie: str) -> str:
    """Returns the path of a bookie's record."""
    return f"{FOLDER}/{quote(bookie, safe='')}"


async def retire(store: MetadataStore, bookie: str, how: str) -> bool:
    """Notes that the bookie of this id is gone, and removes its cookie; whether it had one."""
    at_ms = await store.records.clock()
    await put(store.records, path_of(bookie), json.dumps({"how": how, "at_ms": at_ms}).encode())
    try:
        await store.remove_cookie(bookie)
    except CookieNotFound:
        return False
    return True


async def retired(store: MetadataStore, bookie: str) -> str | None:
    """How and when a bookie of this id was taken out, as a clause without its subject; None: none was."""
    try:
        data = (await store.records.read(path_of(bookie))).value
    except (NoRecord, WrongCluster):  # records of a former cluster say nothing of this one
        return None
    how, at = "taken out", ""
    with suppress(ValueError, TypeError, KeyError, OverflowError, OSError):
        found = parse_json(data)
        how = str(found["how"])
        at = f" at {datetime.fromtimestamp(int(found['at_ms']) // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return how + at
