"""
To which log a ledger belongs: the one that it was made for, or the one that took it in.

Knows: tags, the record of each plain ledger that a log took in, and that a log's manifest has its name.
Does not know: whether the log still names the ledger.
"""

from collections.abc import Iterable, Sequence

from quire.log.core.edits import Published
from quire.log.core.manifest import Adopted, Manifest
from quire.log.store.ledgers import log_of
from quire.log.store.paths import adopted_path, log_path
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.records import NoRecord, Records, parent_of
from quire.metadata.tree import Create, Step
from quire.protocol.log_errors import LogDamaged, LogError, UnknownFormat

# SPDX-License-Identifier: Apache-2.0


async def make_folders(records: Records, ledgers: Iterable[int]) -> None:
    """Makes the folders that the records of adoption lie in."""
    for folder in sorted({parent_of(adopted_path(ledger)) for ledger in ledgers}):
        await records.folder(folder)


def adopted(log: str, edit: str, ledgers: Sequence[Published], n: int, first: int) -> list[Step]:
    """The steps that make a record for each ledger: segment `n`, with records from index `first` on, and so on."""
    steps: list[Step] = []
    for number, each in enumerate(ledgers, n):
        value = Adopted(log, number, first, first + each.records, edit)
        steps.append(Create(adopted_path(each.ledger), value.encode()))
        first = value.end
    return steps


async def adoption(records: Records, ledger: int) -> Adopted | None:
    """The record of a plain ledger that a log took in.  `LogDamaged`, `UnknownFormat`."""
    try:
        return Adopted.decode((await records.read(adopted_path(ledger))).value)
    except NoRecord:
        return None


async def log_id_of(records: Records, ledger: int, metadata: LedgerMetadata) -> str | None:
    """The id of the log that a ledger was made for, or that took it in; None for a plain one."""
    made_for = log_of(metadata)
    if made_for is not None:
        return made_for
    taken = await adoption(records, ledger)
    return None if taken is None else taken.log


async def made_for(records: Records, metadata: LedgerMetadata) -> str | None:
    """The name of the log that a ledger was made for; None for a plain one."""
    log = log_of(metadata)
    return None if log is None else await log_name(records, log)


async def log_name(records: Records, log: str) -> str:
    """Gives the name that a log of that id has in an error."""
    try:
        return repr(Manifest.decode((await records.read(log_path(log))).value).name)
    except NoRecord:
        return f"with the id {log}, which is gone"
    except (LogDamaged, UnknownFormat):
        return f"with the id {log}"


async def refuse(records: Records, ledger: int, metadata: LedgerMetadata) -> None:
    """`LogError` when the ledger is a log's, for who is about to delete it."""
    of = await log_id_of(records, ledger, metadata)
    if of is not None:
        raise LogError(
            f"ledger {ledger} belongs to the log {await log_name(records, of)}, which deletes it itself once it is "
            "trimmed; nothing was deleted. --force deletes it nevertheless, and its records are lost"
        )
