"""
Files that vanish from a bookie that is down: each of them, and each kind of them.  Either the start is refused, and
names what is missing, or nothing that was acknowledged is denied: neither an entry nor a fence.
"""

import fnmatch
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import deferLater

import quire.bookie.journal.segments
from quire.bookie.index.ledger_table import LedgerRow
from quire.bookie.journal.extent import read_extent
from quire.bookie.journal.format import SPARE, segment_start
from quire.bookie.lifecycle.bookie import START_FAILURES, Bookie
from quire.bookie.server.contract import Own
from quire.bookie.storage.storage import Storage
from quire.bookie.upkeep.rebuild import LimboMarker, Upkeep
from quire.conf.bookie import BookieOptions
from quire.metadata.clock import Reactor
from quire.metadata.tree_store import MetadataStore
from quire.protocol.errors import LedgerError, Status
from quire.rows.files import Files, StorageError
from tests.bookie.fakes.disk import KEY, body_of, run_of
from tests.bookie.fakes.in_process import new_store, options_in
from tests.bookie.fakes.losses import with_ledgers
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

SEGMENT_BYTES = 64 << 10
LEDGERS = range(6)
FENCED, IN_LIMBO = 2, 3
REBUILT, LOST = "an index was rebuilt just now", "a directory has failed"
CASES = [(1, "killed"), (1, "stopped"), (2, "killed"), (1, REBUILT), (2, LOST)]  # directories of each kind, and how
# A start does without these: nothing is taken from them, they are made again as they were, or a copy is elsewhere.
SPARED = (
    "quire.lock", "LOCK", "LOG*", "IDENTITY", "OPTIONS-*", "rocksdict-config.json", "lastId", "spare-*", "admin.token",
    "quire.place", "quire.store", "DIRTY", "quire.limbo", "lastMark*",
)  # fmt: skip
# Without one of these it is refused; a spare segment holds nothing.
NEEDED = ("VERSION", "quire.extent", "quire.mark", "quire.lost", "quire.index", "[!s]*.qj", "CURRENT", "MANIFEST-*")


@pytest.fixture(autouse=True)
def _small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quire.bookie.journal.segments, "FIRST_SEGMENT_BYTES", SEGMENT_BYTES)


def options_of(root: Path, store: MetadataStore, count: int) -> BookieOptions:
    options = options_in(
        root,
        store.uri,
        journal_directories=tuple(str(root / f"journal{number}") for number in range(count)),
        ledger_directories=tuple(str(root / f"ledgers{number}") for number in range(count)),
        flush_interval_ms=3_600_000,
    )
    return options.model_copy(update={"journal_segment_bytes": SEGMENT_BYTES})  # less than a bookie's least


class Life:
    """A bookie that adds to its ledgers, and how many entries of each it acknowledged."""

    def __init__(self, options: BookieOptions, store: MetadataStore, entries: Counter[int]) -> None:
        self.bookie = Bookie(reactor, options, store, upkeep=self._start_upkeep)
        self.entries = entries

    def _start_upkeep(self, storage: Storage, clock: Reactor, limbo: LimboMarker) -> Upkeep:
        self.upkeep: Any = Upkeep(storage, clock, limbo)
        return self.upkeep  # type: ignore[no-any-return]

    async def start(self) -> None:
        await self.bookie.start()
        self.storage: Any = self.bookie.service.storage

    async def add(self, ledgers: Iterable[int]) -> None:
        for ledger in ledgers:
            entry, token = self.entries[ledger], Own()
            assert self.storage.add(run_of(ledger, entry, size=size_of(entry)), (token, token)) is Status.EOK
            assert await token.done == Status.EOK
            self.entries[ledger] += 1

    async def fence(self, ledger: int) -> None:
        token = Own()
        assert self.storage.fence(ledger, KEY, (token, token)) is Status.EOK
        assert await token.done == Status.EOK

    async def rebuild_index(self) -> None:
        rebuild = self.upkeep.rebuild
        assert rebuild.start()
        while rebuild.running:
            await deferLater(reactor, 0.001, lambda: None)
        assert rebuild.problem is None


async def lived(root: Path, store: MetadataStore, count: int, how: str) -> Counter[int]:
    """A bookie that left files of each kind in its second life; what it acknowledged.  They are in `left` beside it."""
    options = options_of(root, store, count)
    life = Life(options, store, Counter())
    await life.start()
    await with_ledgers(store, *LEDGERS)
    await life.add([*LEDGERS] * 4)
    if how != REBUILT:
        await life.rebuild_index()
    await life.bookie.stop()
    life = Life(options, store, life.entries)
    await life.start()
    if how == REBUILT:
        await life.rebuild_index()
    await life.add([*LEDGERS] * 3)
    await life.fence(FENCED)
    await life.storage.flush()
    await life.bookie.limbo.mark_incomplete({IN_LIMBO: LedgerRow(KEY, limbo=True)})
    others = [ledger for ledger in LEDGERS if ledger not in (FENCED, IN_LIMBO)]
    if how == LOST:
        assert life.storage.fail_directory(options.ledger_directories[1], "injected")
        others = [ledger for ledger in others if ledger % 2 == 0]
        await life.add(others * 4)
        await life.storage.flush()
    await life.add(others * 4)  # through several segments
    left = root.with_name("left")
    if how != "stopped":
        copy_of(root, left)
    await life.bookie.stop()
    if how == "stopped":
        copy_of(root, left)
    return life.entries


def copy_of(root: Path, left: Path) -> None:
    """What a kill leaves of a bookie that runs, when no thread of it makes a file just then."""

    def names() -> list[Path]:
        return sorted(root.rglob("*"))

    def noted(journal: Path) -> bool:
        newest = segment_start(max(path.name for path in journal.glob("*.qj") if not path.name.startswith(SPARE)))
        return read_extent(Files(), str(journal)) == newest

    before: list[Path] = []
    while names() != before or not all(noted(path) for path in left.glob("journal*/current")):
        before = names()
        shutil.rmtree(left, ignore_errors=True)
        shutil.copytree(root, left, ignore=shutil.ignore_patterns("*.tmp"))


def size_of(entry: int) -> int:
    return 3_000 if entry < 7 else 9_000


async def denied(bookie: Bookie, acknowledged: Counter[int]) -> list[str]:
    """What the bookie says no to."""
    found = []
    storage = bookie.service.storage
    for ledger, count in acknowledged.items():
        for entry in range(count):
            try:
                body = await maybeDeferred(storage.read, ledger, entry)
            except (StorageError, OSError, LedgerError):
                continue  # the client is answered EIO
            if body in (Status.ENOENTRY, Status.ENOLEDGER):
                found.append(f"entry {entry} of ledger {ledger}: {body!r}")
            elif isinstance(body, bytes):
                assert body == body_of(ledger, entry, size_of(entry))
    try:
        status = storage.add(run_of(FENCED, 900), None)
    except (StorageError, OSError, LedgerError):
        return found
    return found + [f"the fence of ledger {FENCED}"] * (status in (None, Status.EOK))


async def outcome(root: Path, store: MetadataStore, count: int, acknowledged: Counter[int]) -> tuple[str, str]:
    """("refused", why), ("denies", what) or ("denies nothing", "")."""
    bookie = Bookie(reactor, options_of(root, store, count), store)
    try:
        await bookie.start()
    except START_FAILURES as failure:
        return "refused", str(failure)
    try:
        found = await denied(bookie, acknowledged)
    finally:
        await bookie.stop()
    return ("denies", "; ".join(found)) if found else ("denies nothing", "")


def gone(root: Path, every: bool) -> Iterator[tuple[str, list[Path]]]:
    """
    Each file, each kind of file of a directory, and all files but the cookie; if not `every` one, of those with equal
    names in all directories one, and none that a start does without.
    """
    kinds: dict[tuple[Path, str], list[Path]] = {}
    seen = set()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        kinds.setdefault((path.parent, path.suffix or path.name.split("-")[0]), []).append(path)
        name = path.name if path.suffix == ".qj" else re.sub(r"\d+", "0", f"{path.parent.name}/{path.name}")
        spared = any(fnmatch.fnmatch(path.name, kind) for kind in SPARED)
        if every or not (spared or name in seen):
            yield str(path.relative_to(root)), [path]
        seen.add(name)
    for (parent, kind), paths in kinds.items():
        if len(paths) > 1 and (every or kind in (".qj", ".log")):
            yield f"{parent.relative_to(root)}: all {kind}", paths
    for parent in sorted(path for path in root.rglob("*") if path.is_dir()):
        paths = [path for path in parent.rglob("*") if path.is_file() and path.name not in ("VERSION", "quire.place")]
        yield f"all of {parent.relative_to(root)} but its cookie", paths


async def lose_each(path: Path, count: int, how: str, every: bool) -> None:
    store = await new_store()
    root, left = path / "bookie", path / "left"
    acknowledged = await lived(root, store, count, how)
    for what, paths in gone(left, every):
        shutil.rmtree(root)
        shutil.copytree(left, root)
        for each in paths:
            (root / each.relative_to(left)).unlink()
        result, why = await outcome(root, store, count, acknowledged)
        print(what, "->", result, why)
        assert result != "denies", f"{what}: {why}"
        if result == "refused":
            # without the note of a lost directory a journal seems to lack what it did not keep for that one
            directory = "journal0" if paths[0].name == "quire.lost" else paths[0].relative_to(left).parts[0]
            assert str(root / directory) in why, f"{what}: {why}"
            assert "quire bookie" in why or "bring the disk back" in why, f"no next step: {what}: {why}"
        needed = len(paths) == 1 and any(fnmatch.fnmatch(paths[0].name, kind) for kind in NEEDED)
        needed = needed and not (how == REBUILT and paths[0].parent.name == "runs")  # the index of before
        # nothing is read of a directory that has failed
        needed = needed and not (how == LOST and "ledgers1" in paths[0].parts)
        assert result == "refused" or not needed, what
    await store.close()


@pytest.mark.parametrize(("count", "how"), CASES)
def test_nothing_is_denied_when_a_file_is_gone(count: int, how: str, tmp_path: Path) -> None:
    """One file of each name, and the kinds of them that a start needs."""
    run(lambda: lose_each(tmp_path, count, how, every=False), 600)


@pytest.mark.long
@pytest.mark.parametrize(("count", "how"), CASES)
def test_nothing_is_denied_whatever_is_gone(count: int, how: str, tmp_path: Path) -> None:
    """Each file of each directory, and each kind of them."""
    run(lambda: lose_each(tmp_path, count, how, every=True), 1800)
