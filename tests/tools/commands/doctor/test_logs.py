"""What `quire doctor` finds in named logs: a segment that its owner left open, and a cursor that is far behind."""

import pytest

from quire.conf.log import LogOptions
from quire.log.api import Logs
from quire.metadata.memory.cluster import Fault
from quire.metadata.memory.store import MemoryStore
from quire.protocol.errors import MetaStore
from quire.tools.commands.doctor import logs as checks
from quire.tools.commands.doctor.examining import Limits, Severity
from tests.reactor import run
from tests.tools.commands.doctor.conftest import World, only

# SPDX-License-Identifier: Apache-2.0


def test_logs_with_and_without_their_owners(world: World) -> None:
    """
    A log that is owned is well; when its owner's session ends before it closes the log it is a finding, until another
    owner has closed it.
    """

    async def story() -> None:
        client = await world.client()
        logs = Logs(client, LogOptions())
        await logs.create("orders")
        owner = await logs.own("orders")
        await owner.append(b"one")
        assert await world.found() == []
        client.store.faults = lambda operation, arguments: Fault(error=MetaStore("gone"))  # type: ignore[attr-defined]
        await client.store.close()
        found = only(await world.found())
        assert (found.check, found.severity, found.about) == ("logs", Severity.WARNING, "orders")
        assert "has no owner" in found.problem
        assert found.next.endswith("`quire log own orders`")
        another = await world.client()
        other = Logs(another, LogOptions(), owns_client=True)
        await (await other.own("orders", wait_s=0)).close()
        assert await world.found() == []
        await other.delete("orders")
        await other.close()

    run(story)


def test_a_cursor_that_is_far_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the age of what it is not done with; and logs beyond the limit are said to be left out."""

    async def story() -> None:
        logs = Logs(await world.client(), LogOptions(), owns_client=True)
        for name in ("orders", "prices"):
            await logs.create(name)
        owner = await logs.own("orders")
        await owner.append_many([b"one", b"two"])
        await owner.close()
        cursor = await logs.cursor("orders", "billing", start="begin")
        await cursor.close()
        assert await world.found() == []
        found = only(await world.found(Limits(cursor_ms=0)))
        assert (found.severity, found.about) == (Severity.WARNING, "orders")
        assert found.problem.startswith("the cursor billing is 2 records and 0.0 hours behind")
        assert "quire log cursor delete orders billing" in found.next
        monkeypatch.setattr(checks, "LOGS_MAX", 1)
        left = only(await world.found(), "logs")
        assert (left.severity, left.made) == (Severity.NOTE, False)
        for name in ("orders", "prices"):
            await logs.delete(name)
        await logs.close()

    run(story)


def test_a_log_that_can_t_be_read(world: World) -> None:
    """It is named, and the others are looked at."""

    def damaged(store: MemoryStore) -> None:
        store.faults = lambda operation, arguments: (
            Fault(error=MetaStore("no")) if operation == "get" and "-quire/logs/" in str(arguments) else None
        )

    async def story() -> None:
        logs = Logs(await world.client(), LogOptions(), owns_client=True)
        await logs.create("orders")
        found = only(await world.found(store=damaged))
        assert (found.about, found.made, found.next) == ("orders", False, "quire log check orders")
        await logs.delete("orders")
        await logs.close()

    run(story)
