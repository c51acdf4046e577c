"""
The message stores of a cluster: found, created, described, deleted.

Knows: that a store is a log whose setting `use` says so, with the descriptor as its child record, and a second log for
progress; which settings both logs have.
Does not know: records, rows, who puts.
"""

from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, NamedTuple

from quire.conf.messages import StoreSettings
from quire.log.api import LogInfo, Logs
from quire.messages.descriptor import CHILD, IMPORTING, READY, USE, Descriptor, Import, Region
from quire.metadata.store import Versioned
from quire.protocol.log_errors import LogExists, NoSuchLog
from quire.protocol.message_errors import NoSuchStore, StoreExists, StoreImporting

# SPDX-License-Identifier: Apache-2.0

PROGRESS = ".progress"  # behind a store's name: the log of its progress, unless its descriptor names another


class StoreInfo(NamedTuple):
    """
    The state of a store.  `master`: the address of the one that leads; `begin` and `end`: physical offsets, `end` None
    while a segment is open.
    """

    name: str
    state: str
    master: str | None
    settings: dict[str, Any]
    regions: list[dict[str, Any]]
    begin: int
    end: int | None
    imported: dict[str, Any] | None
    log: dict[str, Any]


async def create_store(logs: Logs, name: str, settings: StoreSettings, **log_settings: Any) -> LogInfo:
    """
    Both logs of an empty store, with its descriptor.  `StoreExists`; `ValueError` for a name or settings that can't be.
    """
    taken = StoreExists(f"there is a store or log {name!r} already: `quire messages list` lists the stores")
    with suppress(NoSuchLog):
        await logs.info(name)
        raise taken
    await create_progress(logs, settings.progress, **log_settings)
    descriptor = Descriptor((), READY, settings.model_dump(), (Region(0, "plain"),))
    own = {"use": USE, "needs_snapshot": True, "publish": False}
    try:
        return await logs.create(name, children={CHILD: descriptor.encode()}, **log_settings | own)
    except LogExists:
        raise taken from None


async def create_progress(logs: Logs, name: str, **log_settings: Any) -> None:
    """The log of a store's progress, unless it is there; `StoreExists` when another log has its name."""
    kept = {key: value for key, value in log_settings.items() if key in ("ensemble", "write", "ack", "digest")}
    with suppress(LogExists):
        await logs.create(name, use=USE, compaction=True, retention_bytes=0, publish=False, **kept)
        return
    settings = (await logs.info(name)).settings
    if settings.get("use") != USE or not settings.get("compaction") or await logs.child(name, CHILD) is not None:
        raise StoreExists(f"the log {name!r}, which is to keep the store's progress, is another one's")


async def described(logs: Logs, name: str) -> tuple[Descriptor, int]:
    """The descriptor of a store, and its version.  `NoSuchStore`, `LogDamaged`, `UnknownFormat`."""
    found: Versioned[bytes] | None
    try:
        found = await logs.child(name, CHILD)
    except NoSuchLog:
        found = None
    if found is None:
        raise NoSuchStore(f"there is no message store {name!r}: `quire messages list` lists them")
    return Descriptor.read(found.value), found.version


async def ready(logs: Logs, name: str) -> Descriptor:
    """The descriptor of a store whose import has ended, if it had one.  `NoSuchStore`, `StoreImporting`."""
    descriptor, _ = await described(logs, name)
    if descriptor.state == IMPORTING:
        raise StoreImporting(
            f"the import of the store {name!r} has not ended: the same `quire messages import` goes on with it,"
            f" `quire messages delete {name}` gives it up"
        )
    return descriptor


async def names(logs: Logs) -> AsyncGenerator[str, None]:
    """The names of all stores."""
    async for name in logs.names():
        with suppress(NoSuchLog):  # deleted since its name was read
            if (await logs.info(name)).settings.get("use") == USE and await logs.child(name, CHILD) is not None:
                yield name


async def described_all(logs: Logs, name: str) -> StoreInfo:
    """Describes a store as it is now.  `NoSuchStore`."""
    descriptor, _ = await described(logs, name)
    info = await logs.info(name)
    imported: Import | None = descriptor.imported
    return StoreInfo(
        name,
        descriptor.state,
        info.owner,
        dict(descriptor.settings),
        [dict(region.members()) for region in descriptor.regions],
        getattr(info, "begin_at", 0),
        getattr(info, "end_at", None),
        None if imported is None else dict(imported.members()),
        info._asdict(),
    )


async def delete_store(logs: Logs, name: str) -> None:
    """Deletes a store with its progress; also one whose import has not ended.  `NoSuchStore`."""
    descriptor, _ = await described(logs, name)
    with suppress(NoSuchLog):
        await logs.delete(str(descriptor.settings.get("progress", name + PROGRESS)), use=USE)
    with suppress(NoSuchLog):
        await logs.delete(name, use=USE)
