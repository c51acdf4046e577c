"""
Names about ledgers: which there are, their metadata, their entries, a test ledger.

Knows: Apache's words.  Does not know: how ledgers are stored or read.

Safety: reads never fence, unless `readledger -r` asks for it.
"""

from argparse import Namespace
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from quire.metadata.formats import ledger_codec
from quire.metadata.ledger import LedgerMetadata
from quire.protocol.errors import NoSuchEntry, Timeout, error_of
from quire.tools.commands import ledger as commands
from quire.tools.commands.shell.context import Shell, confirm
from quire.tools.commands.shell.names import flag, name, value
from quire.tools.terminal.options import Usage
from quire.tools.trial import on_one_bookie, written_and_read

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

LEDGER = value("l", "ledgerid", metavar="ID", required=True)
GIVEN_MAX = 1_000_000  # ids further from the next one were chosen by their creators
READ_AT_ONCE = 1000  # entries of one bookie in one question


@name("listledgers", flag("m", "meta"), value("bookieid", metavar="ID"))
def listledgers(shell: Shell, given: Namespace) -> None:
    """Lists the ledgers, with -meta their metadata, with -bookieid only those that name that bookie."""

    async def work(store: "MetadataStore") -> None:
        await store.cluster()
        after = -1
        while page := await store.ledger_ids(after):
            for start in range(0, len(page), commands.READ_AT_ONCE):
                await tell(store, page[start : start + commands.READ_AT_ONCE])
            after = page[-1]

    async def tell(store: "MetadataStore", some: list[int]) -> None:
        if not given.meta and given.bookieid is None:
            for ledger in some:
                shell.say("Ledger", ledgerId=ledger)
            return
        for ledger, stored in zip(some, await store.read_ledgers(some), strict=True):
            if stored is not None and (given.bookieid is None or given.bookieid in stored.value.bookies()):
                text = metadata_text(stored.value) if given.meta else None
                shell.say("Ledger", ledgerId=ledger, metadata=text)

    shell.store(work)


@name(
    "ledgermetadata",
    LEDGER,
    value("dumptofile", metavar="FILE"),
    value("restorefromfile", metavar="FILE"),
    flag("update"),
)
def ledgermetadata(shell: Shell, given: Namespace) -> None:
    """Prints a ledger's metadata, writes it to a file, or makes it from one, with -update in place of what is there."""
    ledger = shell.ledger(given.ledgerid)
    if given.dumptofile and given.restorefromfile:
        raise Usage("give one of -dumptofile and -restorefromfile")

    async def restore(store: "MetadataStore") -> None:
        metadata = ledger_codec.decode(Path(given.restorefromfile).read_bytes())
        if given.update:
            await store.write_ledger(ledger, metadata, (await store.read_ledger(ledger)).version)
            return
        at = (await store.progress()).position
        next_ = at.next_to(ledger)
        if next_ <= ledger < next_ + GIVEN_MAX:  # not far: the store gave it before it was set back, once only
            await store.raise_ledger_ids(at.behind([ledger]))
        await store.create_ledger(ledger, metadata)

    if given.restorefromfile:
        shell.store(restore)
        shell.say("Restored metadata", ledgerId=ledger, file=given.restorefromfile)
        return
    found = shell.store(lambda store: store.read_ledger(ledger)).value
    if given.dumptofile:
        Path(given.dumptofile).write_bytes(ledger_codec.encode(found))
        shell.say("Dumped metadata", ledgerId=ledger, file=given.dumptofile)
    else:
        shell.say("ledgerID", ledgerId=ledger, metadata=metadata_text(found))


def metadata_text(metadata: LedgerMetadata) -> str:
    """A ledger's metadata in one line, with the names that Apache's has; without the password."""
    known: dict[str, object] = {
        "formatVersion": metadata.format_version,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum,
        "ackQuorumSize": metadata.ack_quorum,
        "state": metadata.state.name,
    }
    if metadata.is_closed:
        known |= {"length": metadata.length, "lastEntryId": metadata.last_entry}
    if metadata.digest is not None:
        known["digestType"] = metadata.digest.name
    ensembles = ", ".join(f"{each.first}=[{', '.join(each.bookies)}]" for each in metadata.fragments)
    custom = ", ".join(f"{key}=base64:{b64encode(text).decode()}" for key, text in sorted(metadata.custom.items()))
    words = [f"{key}={each}" for key, each in known.items()]
    return f"LedgerMetadata{{{', '.join(words)}, ensembles={{{ensembles}}}, customMetadata={{{custom}}}}}"


@name("deleteledger", LEDGER, flag("f", "force"))
def deleteledger(shell: Shell, given: Namespace) -> None:
    """Deletes a ledger; refuses one of a named log, unless forced."""
    ledger = shell.ledger(given.ledgerid)
    confirm(f"Delete ledger {ledger} for good?", given.force)

    async def work(store: "MetadataStore") -> None:
        found = (await store.read_ledger(ledger)).value
        if not given.force:
            await commands.refuse_of_log(store, ledger, found)
        await store.delete_ledger(ledger)

    shell.store(work)
    shell.say("Deleted ledger", ledgerId=ledger)


@name(
    "readledger",
    LEDGER,
    value("fe", "firstentryid", metavar="N", type=int, default=0),
    value("le", "lastentryid", metavar="N", type=int, default=-1),
    flag("m", "msg"),
    flag("r", "force-recovery"),
    value("b", "bookie", metavar="ID"),
)
def readledger(shell: Shell, given: Namespace) -> None:
    """Reads entries, with -msg their data, from any bookie that has them or from one; -r fences and closes first."""
    ledger, first, last = shell.ledger(given.ledgerid), given.firstentryid, given.lastentryid
    if first < 0 or (last != -1 and last < first):
        raise Usage(f"-firstentryid {first} to -lastentryid {last} is no range: 0 or more, and -1 for the end")
    if given.force_recovery and given.bookie is not None:
        raise Usage("-force-recovery asks all bookies of the ledger: give it without -bookie")

    def tell(entry: int, data: bytes) -> None:
        text = shell.entry_text(data) if given.msg else None
        shell.say("Entry", ledgerId=ledger, entryId=entry, entrySize=len(data), data=text)

    async def from_all(client: "Client") -> None:
        password = (await client.metadata(ledger)).password or b""
        reader = await client.open_ledger(ledger, password, recover=given.force_recovery)
        end = reader.last_entry_id if last == -1 else min(last, reader.last_entry_id)
        if first <= end:
            async for entries in reader.stream(first, end):
                for each in entries:
                    tell(each.entry_id, bytes(each.data))
        await reader.close()

    async def from_one(client: "Client") -> None:
        from quire.client.handles.ledger_record import digest_of
        from quire.replication.replicas import ReplicaReader

        digest = digest_of(ledger, await client.metadata(ledger))
        copies, entry = ReplicaReader(client.pool, ledger, digest), first
        for start, count in await copies.stored(given.bookie) or [(first, last - first + 1 if last != -1 else 1 << 62)]:
            entry = max(first, start)
            end = start + count if last == -1 else min(start + count, last + 1)
            while entry < end:
                code, bodies = await copies.piece(given.bookie, entry, min(READ_AT_ONCE, end - entry))
                if code == NoSuchEntry.code and last == -1:
                    break
                if code:
                    raise error_of(code, f"entry {entry} of ledger {ledger} on {given.bookie}")
                for body in bodies:
                    tell(entry, digest.open(ledger, entry, body))
                    entry += 1

    shell.client(from_all if given.bookie is None else from_one)


@name(
    "simpletest",
    value("e", "ensemble", metavar="N", type=int, default=3),
    value("w", "writeQuorum", metavar="N", type=int, default=2),
    value("a", "ackQuorum", metavar="N", type=int, default=2),
    value("n", "numEntries", metavar="N", type=int, default=1000),
)
def simpletest(shell: Shell, given: Namespace) -> None:
    """Writes a ledger and reads it back; it stays."""

    async def work(client: "Client") -> int:
        quorums = given.ensemble, given.writeQuorum, given.ackQuorum
        return await written_and_read(client, quorums, given.numEntries)

    ledger = shell.client(work)
    shell.say("Ledger ID", ledgerId=ledger)
    shell.say(f"{given.numEntries} entries written to ledger {ledger}", lastEntryId=given.numEntries - 1)


@name(
    "bookiesanity",
    value("e", "entries", metavar="N", type=int, default=10),
    value("t", "timeout", metavar="SECONDS", type=float),
)
def bookiesanity(shell: Shell, given: Namespace) -> None:
    """Writes a ledger to this machine's bookie alone, reads it back and deletes it."""
    bookie = shell.bookie

    async def work(client: "Client") -> int:
        test = Deferred.fromCoroutine(on_one_bookie(client, bookie, given.entries))
        if given.timeout is not None:
            test.addTimeout(given.timeout, cast(IReactorTime, client.reactor), late)
        return await test

    def late(_result: object, seconds: float) -> None:
        raise Timeout(f"{bookie} took longer than {seconds:g} s")

    shell.say("Bookie sanity test passed", bookieId=bookie, ledgerId=shell.client(work), entries=given.entries)
