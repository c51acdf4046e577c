"""
Ledgers as a plan sees them: their metadata, judged without a bookie, and how far they can be looked at.

Knows: what metadata can't be, which bookies there are, what a placement policy promises.
Does not know: what bookies hold.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from quire.client.api import Client
from quire.client.core.quorum import Domains, Quorums
from quire.client.placement.levels import domains_wanted
from quire.metadata.ledger import LedgerMetadata
from quire.metadata.store import BookieList
from quire.protocol.errors import (
    LedgerError,
    MetadataSerialization,
    MetaStoreRefused,
    NoSuchLedger,
    Read,
    Security,
    Timeout,
    UnauthorizedAccess,
)
from quire.replication.concurrently import about_one, all_of
from quire.replication.core.fragments import entry_bytes
from quire.replication.scrub.judge import Finding, about_ledger

# SPDX-License-Identifier: Apache-2.0

AT_ONCE = 64


class Known(NamedTuple):
    """Facts of the cluster besides ledgers.  `domains`: None when the placement promises nothing that could be kept."""

    bookies: frozenset[str]  # registered, or with a cookie
    domains: Domains | None


class Planned(NamedTuple):
    """A ledger and the last entry to look at."""

    ledger: int
    metadata: LedgerMetadata
    last: int

    @property
    def quorums(self) -> Quorums:
        return Quorums.of(self.metadata)


async def known(client: Client) -> Known:
    """`MetaStore`."""
    listed = await client.store.bookies()
    cookies = await client.store.cookies()
    domains = await domains_of(client, listed)
    return Known(frozenset((*listed.writable, *listed.read_only, *cookies)), domains)


async def domains_of(client: Client, listed: BookieList) -> Domains | None:
    """Returns what the placement promises; None when that is nothing that could be kept with these bookies."""
    registered = {**listed.writable, **listed.read_only}
    await client.topology.learn(registered)
    wanted = domains_wanted(client.options, client.topology.place_of)
    if wanted is not None and len(set(map(wanted.of, registered))) < wanted.least:
        return None  # there are not so many in this cluster
    return wanted


async def copies_bytes(client: Client, ledgers: Sequence[int]) -> list[int]:
    """Bytes of all copies of each; 0 of one that is not closed, is gone or can't be read.  `MetaStore`."""
    try:
        found = [stored and stored.value for stored in await client.store.read_ledgers(ledgers)]
    except LedgerError as error:
        if len(ledgers) == 1:
            await about_one(client.store, error)
            return [0]  # `planned` has a finding for it
        return [size for ledger in ledgers for size in await copies_bytes(client, [ledger])]
    return [
        entry_bytes(metadata) * (metadata.last_entry + 1) * metadata.write_quorum
        if metadata is not None and metadata.is_closed
        else 0
        for metadata in found
    ]


async def end_of(client: Client, ledger: int, metadata: LedgerMetadata) -> tuple[int, LedgerMetadata]:
    """
    The last entry that has to be there, with metadata no older than that: the last add confirmed of an unclosed
    ledger.  `MetadataSerialization` when its metadata names no digest; `Read` when none can be had.
    """
    if metadata.is_closed:
        return metadata.last_entry, metadata
    if metadata.password is None:
        raise MetadataSerialization(f"ledger {ledger}: its metadata names no digest, so its entries can't be checked")
    try:
        reader = await client.open_ledger(ledger, metadata.password, recover=False)
    except (Timeout, Security, UnauthorizedAccess) as error:  # of its bookies: others are judged all the same
        raise Read(str(error)) from error
    try:
        return reader.last_entry_id, reader.metadata
    finally:
        await reader.close()


async def planned(
    client: Client, ledgers: Sequence[int], about: Known, told: Callable[[int], object] = lambda _done: None
) -> tuple[list[Planned], list[Finding]]:
    """Plans of ledgers that can be looked at, and what is wrong already.  `told` hears how many were asked for."""
    plans: list[Planned] = []
    found: list[Finding] = []
    for start in range(0, len(ledgers), AT_ONCE):
        some = ledgers[start : start + AT_ONCE]
        for one in await all_of([_planned(client, ledger) for ledger in some]):
            if isinstance(one, Finding):
                found.append(one)
            elif one is not None:
                plans.append(one)
                found += wrong_metadata(one.ledger, one.metadata, about)
        told(start + len(some))
    return plans, found


async def _planned(client: Client, ledger: int) -> Planned | Finding | None:
    try:
        last, metadata = await end_of(client, ledger, await client.metadata(ledger))
    except NoSuchLedger:
        return None
    except (MetadataSerialization, MetaStoreRefused) as error:
        await about_one(client.store, error)
        return about_ledger(ledger, "metadata", str(error))
    except Read as error:
        return about_ledger(ledger, "unreachable", f"its last add confirmed can't be read: {error}")
    return Planned(ledger, metadata, last)


def wrong_metadata(ledger: int, metadata: LedgerMetadata, about: Known) -> list[Finding]:
    """Lists what is wrong with the metadata itself."""
    found: list[Finding] = []
    quorums = Quorums.of(metadata)
    if metadata.digest is None:
        found.append(about_ledger(ledger, "metadata", f"format {metadata.format_version} names no digest"))
    if metadata.fragments[0].first != 0:
        found.append(about_ledger(ledger, "metadata", f"its first fragment begins at {metadata.fragments[0].first}"))
    # One that was begun and got no entry is ordinary; a writer begins the next one above the confirmed ones.
    empty = [first for first, last, _bookies in metadata.fragment_ranges() if last is not None and last < first]
    if len(empty) > 1:
        found.append(
            about_ledger(ledger, "metadata", f"{len(empty)} fragments begin after its last entry", fragment=empty[0])
        )
    for fragment in metadata.fragments:
        for bookie in sorted(set(fragment.bookies)):
            if fragment.bookies.count(bookie) > 1:
                found.append(about_ledger(ledger, "duplicate", "the ensemble names it twice", fragment.first, bookie))
            if bookie not in about.bookies:
                found.append(
                    about_ledger(ledger, "unknown", "not registered, and without a cookie", fragment.first, bookie)
                )
        if about.domains is not None and not about.domains.serve(quorums, fragment.bookies):
            found.append(about_ledger(ledger, "placement", about.domains.lack(fragment.bookies), fragment.first))
    return found
