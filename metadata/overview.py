"""
The state of a cluster in a few words and numbers, as Apache's tools say it.

Knows: which parts of the metadata say it.  Does not know: who asks.
"""

from typing import Any

from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0


async def overview(store: MetadataStore) -> dict[str, Any]:
    """Returns the auditor, whether ledgers lack copies and are repaired, and how many bookies there are."""
    found, known = await store.bookies(), set(await store.cookies())
    auditor = (await store.auditing.election()).auditor
    writable, read_only = set(found.writable), set(found.read_only) - set(found.writable)
    return {
        "auditorElected": auditor is not None,
        "auditorId": auditor or "",
        "clusterUnderReplicated": bool(await store.repairs.shortages(-1, 1)),
        "ledgerReplicationEnabled": await store.repairs.enabled(),
        "totalBookiesCount": len(known | writable | read_only),
        "writableBookiesCount": len(writable),
        "readonlyBookiesCount": len(read_only),
        "unavailableBookiesCount": len(known - writable - read_only),
    }
