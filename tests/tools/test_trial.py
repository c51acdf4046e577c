"""A ledger on trial: on one bookie alone, and what it says of one that can't."""

from pathlib import Path

import pytest

from quire.client.api import connect
from quire.protocol.errors import NotEnoughBookies
from quire.tools.trial import on_one_bookie, written_and_read
from tests.bookie.fakes.in_process import new_store, running
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_one_bookie_is_tried_alone(tmp_path: Path) -> None:
    """Its ledger is gone afterwards; a trial on any bookies stays; a bookie that is not there is named."""

    async def story() -> None:
        store = await new_store()
        async with running(tmp_path, store) as bookie:
            client = await connect(reactor, store.uri)  # type: ignore[arg-type]
            await on_one_bookie(client, bookie.id, 3)
            assert await client.ledger_ids() == []
            kept = await written_and_read(client, (1, 1, 1), 250)
            assert await client.ledger_ids() == [kept]
            with pytest.raises(NotEnoughBookies, match="elsewhere is not writable"):
                await on_one_bookie(client, "elsewhere", 3)
            await client.close()
        await store.close()

    run(story)
