"""
A ledger on trial: written, closed, read back and compared, on the bookies that the client chooses or on one alone.

Knows: what such a ledger holds.  Does not know: who asks, and whether it stays.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.protocol.errors import DigestMatch, NotEnoughBookies

if TYPE_CHECKING:
    from quire.client.api import Client, Entry
    from quire.client.placement.policy import Wish

# SPDX-License-Identifier: Apache-2.0

TEST_BYTES = 100  # of an entry
BATCH = 100  # entries in one call


class Here:
    """A placement that knows one bookie."""

    def __init__(self, bookie: str) -> None:
        self._bookie = bookie

    def new_ensemble(
        self, available: Sequence[str], size: int, exclude: Sequence[str] = (), wish: "Wish | None" = None
    ) -> list[str]:
        """Chooses it if it is writable."""
        if self._bookie not in available or size > 1:
            raise NotEnoughBookies(f"{self._bookie} is not writable")
        return [self._bookie]

    def replacement(
        self,
        available: Sequence[str],
        ensemble: Sequence[str],
        excluded: Sequence[str] = (),
        *,
        index: int,
        wish: "Wish | None" = None,
    ) -> str:
        """There is none."""
        raise NotEnoughBookies(f"{self._bookie} failed, and it alone is meant")


async def written_and_read(client: "Client", quorums: tuple[int, int, int], entries: int) -> int:
    """Writes a ledger, closes it, reads it back and compares; its id.  `DigestMatch` when it differs."""
    ensemble, write, ack = quorums
    writer = await client.create_ledger(ensemble_size=ensemble, write_quorum=write, ack_quorum=ack)
    payloads = [b"%d" % number + bytes(TEST_BYTES) for number in range(entries)]
    for start in range(0, entries, BATCH):
        await writer.append_many(payloads[start : start + BATCH])
    await writer.close()
    reader = await client.open_ledger(writer.id)
    found: list[Entry] = await reader.read(0, entries - 1) if entries else []
    await reader.close()
    if [bytes(each.data) for each in found] != payloads:
        raise DigestMatch(f"ledger {writer.id} was read back otherwise than it was written")
    return int(writer.id)


async def on_one_bookie(client: "Client", bookie: str, entries: int) -> int:
    """Writes a ledger to one bookie alone, reads it back and deletes it; the id that it had."""
    from quire.client.api import Client

    here = Client(client.reactor, client.store, client.options, pool=client.pool, placement=Here(bookie))
    ledger = await written_and_read(here, (1, 1, 1), entries)
    await client.delete_ledger(ledger)
    return ledger
