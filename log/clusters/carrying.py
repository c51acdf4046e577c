"""
Carries along what a log has beside its records to another cluster: settings, where its cursors are, what its publishers
have published, and the newest snapshot of its replicas.

Knows: where these are, and how they are made in the copy; what can not be carried, and what a copy lacks for them.
Does not know: records, owners, the order of a move.

Safety: all of it is carried between the fence of the log and the promotion of its copy, so nothing of it changes
meanwhile: the holder of a cursor is deposed before what it stored is read, no other one can hold it, and nothing is
published.  Each thing comes into the copy in one step with its manifest, which is still that of a copy.  What is there
already may be of an earlier move, after which the log went on where it was: it stays only where it is the same.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from quire.log.core.manifest import Manifest
from quire.log.core.moving import Carry, is_fenced
from quire.log.core.streams.cursors import CursorValue, acks_of
from quire.log.machine.snapshots import SnapshotWriter, read_snapshot
from quire.log.store.context import LogContext
from quire.log.store.holds import Hold, open_marks
from quire.log.store.paths import CHILD
from quire.log.streams.cursors import find, listed, name_path
from quire.log.streams.holding import MOVER, CursorLedger, Holding
from quire.log.streams.record import CursorRecord
from quire.metadata.records import NoRecord, RecordChanged, RecordExists
from quire.metadata.tree import Create, Step, Write
from quire.protocol.errors import LedgerError
from quire.protocol.log_errors import LogError, NoSuchCursor

# SPDX-License-Identifier: Apache-2.0

SETTINGS_OF_CLUSTER = ("partition_of", "ensemble", "write", "ack")


async def carry(source: LogContext, target: LogContext, move: str) -> None:
    """All of it.  `LogFenced` when the copy was promoted meanwhile; the errors of cursors and of ledgers."""
    await carry_settings(source, target)
    await carry_cursors(source, target, move)
    await carry_txns(source, target)
    await carry_snapshot(source, target)


async def check_goes(source: LogContext) -> None:
    """`LogError` for a log that has what can't be carried, unless it is fenced already."""
    log = source.log
    manifest = (await log.read()).value
    stays = ""
    if await log.names(f"{log.path}/{CHILD}"):
        stays = "it was made with child records"
    elif manifest.settings.get("compaction") and manifest.standing is not None and manifest.begin.index:
        stays = f"its compaction keeps records from before index {manifest.begin.index}, where the log begins"
    if stays and not is_fenced(manifest):
        raise LogError(f"the log {log.name!r} can't be moved: {stays}, and these do not move; nothing was changed")


async def check_has(source: LogContext, target: LogContext, manifest: Manifest) -> bool:
    """
    True; `LogError` where the copy lacks what the log, as of that manifest, needs there: records that were trimmed of a
    copy which a mirror kept, producers that were not recognised when it was made.
    """
    if is_fenced(manifest):
        return True
    copy, settings = (await target.log.read()).value, manifest.settings
    needed = [Hold(f"the cursor {hold.what!r}", hold.needs) for hold in await open_marks(source.log)]
    if settings.get("needs_snapshot"):
        needed.append(Hold("the newest snapshot", max((each.index for each in manifest.snapshots), default=0)))
    lowest = min(needed, key=lambda hold: hold.needs, default=None)
    lacks = ""
    if lowest is not None and max(lowest.needs, manifest.begin.index) < copy.begin.index:
        lacks = f"begins at index {copy.begin.index}, and {lowest.what} needs the log from index {lowest.needs} on"
    elif settings.get("dedup") and not copy.settings.get("dedup"):
        lacks = "was made before `dedup` was set, and does not know the producers"
    if lacks:
        raise LogError(
            f"the log {manifest.name!r} stays where it is, for its copy in the other cluster {lacks}: run `quire log "
            "move` with --abort, and if that leaves the copy there, `quire log mirror` with --set-aside, which makes "
            "another one"
        )
    return True


async def carry_settings(source: LogContext, target: LogContext) -> None:
    """Settings that were changed since the copy was made; how many bookies keep it is a matter of its cluster."""
    of_log, of_copy = (await source.log.read()).value.settings, (await target.log.read()).value.settings
    names = [name for name, value in of_log.items() if value != of_copy.get(name) and name not in SETTINGS_OF_CLUSTER]
    settings = {name: of_log[name] for name in names}
    if "lease_ms" in settings:
        await target.leases.edit(Carry(settings), target.log.edit)
    elif settings:
        await target.log.edit(Carry(settings))


async def carry_cursors(source: LogContext, target: LogContext, move: str) -> None:
    """Each cursor, by its name, with what is acknowledged; one that a mirror made in the copy is put in its place."""
    begin = (await source.log.read()).value.begin.index
    async for record in listed(source.log):
        while not await _carry_cursor(source, target, record, move, begin):
            pass


async def _carry_cursor(source: LogContext, target: LogContext, record: CursorRecord, move: str, begin: int) -> bool:
    """False: another command was at it, and it is looked at again."""
    log = target.log
    try:
        there: CursorRecord | None = await find(log, record.name)
        before = None if there is None else await there.read()
    except NoSuchCursor:
        there, before = None, None
    token = f"{MOVER}{move}"
    if before is not None and before.value.edit == move and (await record.read()).value.holder == token:
        return True
    holding = Holding(source, record, token)
    await holding.hold()
    await holding.load()
    marks, properties = holding.marks, (await record.read()).value.properties
    id_ = f"{log.new_id()}{log.new_id()}" if there is None else there.id
    made = CursorValue.new(record.name, move, marks.mark, log.now_ms())
    if before is not None:
        made = replace(before.value.left(log.now_ms()), edit=move, holder=None, mark=marks.mark)
    made = replace(made, properties=properties)
    acks, ledger = acks_of(marks.runs()), None
    if acks is not None:
        made = replace(made, acks=acks)
    else:
        ledger = await CursorLedger.made(target, id_)
        await ledger.write_checkpoint(marks)
        await ledger.close()
        made = made.named(ledger.id, ledger.checkpoint, marks.mark, log.now_ms())

    def beside(copy: Manifest, _after: Manifest) -> Sequence[Step]:
        if max(made.mark, begin) < copy.begin.index:  # what was not acknowledged would go with the log that is left
            raise trimmed_below(copy, record.name, made.mark)
        data = replace(made, mark=max(made.mark, copy.begin.index)).encode()
        path = f"{log.path}/cursor/{id_}"
        if before is not None:
            return [Write(path, data, before.version)]
        pointer = json.dumps({"cursor": id_}, separators=(",", ":")).encode()
        return [Create(name_path(log, record.name), pointer), Create(path, data)]

    try:
        await log.edit(Carry(), beside=beside)
    except (RecordExists, RecordChanged, NoRecord):
        if ledger is not None:
            with suppress(LedgerError):  # else the search for orphans finds it
                await target.ledgers.delete(ledger.id)
        return False
    return True


def trimmed_below(copy: Manifest, cursor: str, mark: int) -> LogError:
    """The error of a cursor that is further behind than its log is there, of which then nothing is deleted."""
    return LogError(
        f"the copy of the log {copy.name!r} begins at index {copy.begin.index}, and the cursor {cursor!r} needs the "
        f"log from index {mark} on: these records are where the log comes from, and nothing is deleted there; `quire "
        f"log mirror {copy.name} --promote`, with that cluster as --to, lets it go on there"
    )


async def carry_txns(source: LogContext, target: LogContext) -> None:
    """Tells the copy what each publisher has published last; what it did not publish is written again."""
    for part in await source.log.names(f"{source.log.path}/txn"):
        while not await _carry_txn(source, target, part):
            pass


async def _carry_txn(source: LogContext, target: LogContext, part: str) -> bool:
    """False: another command was at it, and it is looked at again."""
    log, path = target.log, f"{target.log.path}/txn/{part}"
    try:
        data = (await source.log.records.read(f"{source.log.path}/txn/{part}")).value
    except NoRecord:  # forgotten meanwhile
        return True
    try:
        before = await log.records.read(path)
    except NoRecord:
        steps: list[Step] = [Create(f"{log.path}/intents/{part}"), Create(path, data)]
    else:
        if before.value == data:
            return True
        steps = [Write(path, data, before.version)]
    try:
        await log.edit(Carry(), beside=lambda _before, _after: steps)
    except (RecordExists, RecordChanged, NoRecord):
        return False
    return True


async def carry_snapshot(source: LogContext, target: LogContext) -> None:
    """The newest snapshot of a replica: one in the other cluster could not begin without, where the log was trimmed."""
    kept = (await source.log.read()).value.snapshots
    newest = max(kept, key=lambda each: each.index, default=None)
    if newest is not None:
        data = await read_snapshot(source, newest)
        await SnapshotWriter(target).write(data, newest.index, newest.epoch, newest.machine)
