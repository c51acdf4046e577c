"""
The ledgers that were made for logs, as their tags say.

Knows: that they are listed by pages, and which tags a ledger of this layer has.
Does not know: which of them a log names.
"""

import re
from dataclasses import dataclass

from quire.client.api import Client
from quire.log.store.ledgers import log_of
from quire.metadata.store import at_once
from quire.protocol.errors import MetadataSerialization, NoSuchLedger

# SPDX-License-Identifier: Apache-2.0

LOG_ID = re.compile("[0-9a-f]{32}")
AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Tagged:
    """A ledger of this layer, as its metadata says."""

    ledger: int
    log: str
    name: str
    component: str
    cursor: str
    ctime_ms: int | None


async def tagged(client: Client) -> list[Tagged]:
    """All ledgers of this layer; those whose metadata can't be decoded are not."""
    found: list[Tagged] = []
    after = -1
    while page := await client.ledger_ids(after):
        for start in range(0, len(page), AT_ONCE):
            looked = await at_once([_looked_up(client, ledger) for ledger in page[start : start + AT_ONCE]])
            found += [each for each in looked if each is not None]
        after = page[-1]
    return found


async def _looked_up(client: Client, ledger: int) -> Tagged | None:
    try:
        metadata = await client.metadata(ledger)
    except (NoSuchLedger, MetadataSerialization):
        return None
    of = log_of(metadata)
    if of is None or not LOG_ID.fullmatch(of):
        return None
    name, component, cursor = (
        metadata.custom.get(key, b"").decode("utf-8", "replace") for key in ("quire/name", "component", "quire/cursor")
    )
    return Tagged(ledger, of, name, component, cursor, metadata.ctime_ms)
