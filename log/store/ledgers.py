"""
The ledgers of a log: made with their tags, brought to their end, counted, deleted; and to which log a ledger belongs:
the one that it was made for, or the one that took it in.

Knows: which custom metadata a ledger of this layer carries, that the header of its last entry says what a closed ledger
holds, the record of each plain ledger that a log took in, and that a log's manifest has its name.
Does not know: whether a log still names a ledger, who owns, what a record is.

Safety: a ledger is counted only when it is CLOSED; it is deleted only after that, so that nobody can go on
writing it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from twisted.logger import Logger

from quire.client.api import Client, Writer
from quire.conf.log import LogSettings
from quire.log.core.edits import Published
from quire.log.core.frame import unpack_header
from quire.log.core.manifest import Adopted, Manifest
from quire.log.core.values import Counts
from quire.log.store.paths import adopted_path, log_path
from quire.metadata.ledger import LedgerMetadata, LedgerState
from quire.metadata.records import NoRecord, Records, parent_of
from quire.metadata.store import at_once
from quire.metadata.tree import Create, Step
from quire.protocol.errors import LedgerError, MetaStore, NoSuchLedger
from quire.protocol.log_errors import LogDamaged, LogError, UnknownFormat

# SPDX-License-Identifier: Apache-2.0

log = Logger()

TAG = b"quire"
DELETED_AT_ONCE = 20


class Tags(NamedTuple):
    """The log that a ledger is of, and what it is for."""

    component: str  # log-segment, log-part, log-cursor, log-snapshot, log-compacted
    log: str
    name: str
    creation: str  # random
    more: Mapping[str, str] = {}

    def encoded(self) -> dict[str, bytes]:
        """As custom metadata."""
        found = {
            "application": "quire",
            "component": self.component,
            "quire/log": self.log,
            "quire/name": self.name,
            "quire/creation": self.creation,
            **{f"quire/{name}": value for name, value in self.more.items()},
        }
        return {name: value.encode() for name, value in found.items()}


def log_of(metadata: LedgerMetadata) -> str | None:
    """The id of the log that a ledger was made for; None when it is not one of this layer."""
    custom = metadata.custom
    if custom.get("application") != TAG or not custom.get("component", b"").startswith(b"log-"):
        return None
    return custom.get("quire/log", b"").decode("ascii", "replace")


class Ended(NamedTuple):
    """A ledger that is closed: the id of its last entry, -1 for none, and what it holds."""

    last: int
    counts: Counts


class Deleted(NamedTuple):
    """The ledgers that are gone, and why others stay: they can't be brought to their end now."""

    gone: set[int]
    stayed: dict[int, str]


class LogLedgers:
    """The ledgers of this layer through one client; `password` is that of those that are made."""

    def __init__(self, client: Client, password: bytes) -> None:
        self._client = client
        self._password = password

    async def create(self, settings: LogSettings, tags: Tags, ledger: int | None = None) -> Writer:
        """A new ledger.  The errors of `Client.create_ledger`."""
        return await self._client.create_ledger(
            ensemble_size=settings.ensemble,
            write_quorum=settings.write,
            ack_quorum=settings.ack,
            password=self._password,
            digest=settings.digest,
            custom_metadata=tags.encoded(),
            ledger_id=ledger,
        )

    async def close(self, writer: Writer) -> None:
        """Closes a ledger; one whose end could not be stored, by its writer now or before, is recovered."""
        try:
            await writer.close()
        except MetaStore:
            await self._client.recover_ledger(writer.id)

    async def end(self, ledger: int, raw: bool = False) -> Ended:
        """Fences a ledger, ends it and counts its content.  `NoSuchLedger`, errors of a recovery, `LogDamaged`."""
        return await self.count(ledger, await self._client.recover_ledger(ledger), raw)

    async def count(self, ledger: int, metadata: LedgerMetadata, raw: bool = False) -> Ended:
        """Reads what a CLOSED ledger holds."""
        last = metadata.last_entry
        if raw:
            return Ended(last, Counts(last + 1, metadata.length, last + 1, 0))
        if last < 0:
            return Ended(-1, Counts(0, 0, 0, 0))
        reader = await self._client.open_ledger(ledger, metadata.password or b"", recover=False)
        try:
            (entry,) = await reader.read(last, last)
        finally:
            await reader.close()
        try:
            header = unpack_header(entry.data)
        except (LogDamaged, UnknownFormat) as error:
            raise type(error)(f"ledger {ledger}, entry {last}: {error}") from None
        return Ended(
            last, Counts(header.ordinal + header.records, header.offset + header.bytes, last + 1, header.stamp)
        )

    async def is_open(self, ledger: int) -> bool:
        """True if nobody has ended it, nor deleted it.  `MetaStore`."""
        try:
            return (await self._client.metadata(ledger)).state is LedgerState.OPEN
        except NoSuchLedger:
            return False

    async def delete(self, ledger: int, fenced: Callable[[], object] = lambda: None, abandon: bool = False) -> None:
        """
        Brings a ledger to its end, calls `fenced`, and removes it.  One that is not there is success.  The errors of a
        recovery; `abandon`: it is removed nevertheless when its bookies can't be asked, so who writes it may go on.
        """
        try:
            await self._client.recover_ledger(ledger)
        except NoSuchLedger:
            return
        except MetaStore:
            raise
        except LedgerError:
            if await self._is_gone(ledger):  # another one has deleted it meanwhile
                return
            if not abandon:
                raise
        fenced()
        await self._client.delete_ledger(ledger)

    async def delete_all(
        self,
        ledgers: Sequence[int],
        fenced: Callable[[], object] = lambda: None,
        deleted: Callable[[], object] = lambda: None,
        abandon: bool = False,
    ) -> Deleted:
        """Deletes several ledgers, a few at a time; `deleted` is called after each.  `MetaStore`."""
        done = Deleted(set(), {})

        async def delete(ledger: int) -> None:
            try:
                await self.delete(ledger, fenced, abandon)
            except MetaStore:
                raise
            except LedgerError as error:
                log.warn(
                    "ledger {ledger} can't be deleted now: {error}; `quire log tidy --abandon` does it nevertheless",
                    ledger=ledger,
                    error=str(error),
                )
                done.stayed[ledger] = f"{type(error).__name__}: {error}"
            else:
                done.gone.add(ledger)
                deleted()

        for start in range(0, len(ledgers), DELETED_AT_ONCE):
            await at_once([delete(ledger) for ledger in ledgers[start : start + DELETED_AT_ONCE]])
        return done

    async def _is_gone(self, ledger: int) -> bool:
        try:
            await self._client.metadata(ledger)
        except NoSuchLedger:
            return True
        return False


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
