"""A bookie in this process that loses something between two starts."""

from collections.abc import Callable
from pathlib import Path

from quire.bookie.lifecycle.bookie import Bookie
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.tree_store import MetadataStore
from quire.rows.files import Files
from tests.bookie.fakes.in_process import new_store, options_in
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


async def with_ledgers(store: MetadataStore, *ledgers: int) -> None:
    """Ledgers of which the metadata names the bookie "raw"."""
    for ledger in ledgers:
        await store.create_ledger(ledger, LedgerMetadata.new(3, 3, 2, ("raw", "b", "c"), password=b"secret"))


def limbo_after(
    path: Path,
    between: Callable[[Path], None],
    restore: bool = False,
    boots: tuple[bytes, bytes] = (b"1", b"1"),
    **more: object,
) -> list[int]:
    """
    A bookie starts and stops, something happens, it starts again: what is in limbo then.  The metadata gives it ledgers
    0 to 3.
    """

    async def story() -> list[int]:
        store = await new_store()
        found: list[int] = []
        for turn, boot in enumerate(boots):
            files = Files()
            files.boot_id = lambda boot=boot: boot  # type: ignore[misc, method-assign]
            bookie = Bookie(reactor, options_in(path, store.uri, **more), store, files, restore=restore and turn > 0)
            await bookie.start()
            if not turn:
                await with_ledgers(store, 0, 1, 2, 3)
            found = bookie.copies.limbo()
            assert bookie.limbo.incomplete == bool(found)
            assert bookie.restoring == bookie.read_only == bool(found)
            assert not bookie.service.read_only, "recovery has to be able to write"
            if found:
                assert str(bookie.read_only_reasons[0]).startswith("what it may have lost")
                bookie.copied()
                assert (bookie.limbo.incomplete, bookie.read_only) == (True, False)
            await bookie.stop()
            if not turn:
                between(path)
        await store.close()
        return found

    return run(story)


def wipe(path: Path) -> None:
    """An empty disk in the place of the old one."""
    for part in sorted(path.rglob("*"), reverse=True):
        part.rmdir() if part.is_dir() else part.unlink()
