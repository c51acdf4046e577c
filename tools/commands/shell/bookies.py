"""
Names about bookies: which there are, what they hold, taking one out, giving one another id.

Knows: Apache's words.  Does not know: how any of it is done.
"""

import socket
from argparse import Namespace
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from quire.metadata.ledger import check_bookie_id
from quire.metadata.store import ServiceInfo
from quire.protocol.errors import OK, BookieHandleNotAvailable
from quire.tools.commands.repair.progress import TOLD_MAX, Shown
from quire.tools.commands.shell.context import Shell, confirm, one_of
from quire.tools.commands.shell.names import argument, flag, name, value
from quire.tools.terminal import output
from quire.tools.terminal.options import Usage, refused

if TYPE_CHECKING:
    from quire.client.api import Client
    from quire.metadata.tree_store import MetadataStore
    from quire.replication.freeing.run import Recovered
    from quire.replication.renaming import Renamed

# SPDX-License-Identifier: Apache-2.0

HEADINGS = {"readwrite": "ReadWrite Bookies :", "readonly": "Readonly Bookies :", "all": "All Bookies :"}
UNKNOWN = "UNKNOWN"  # the host of a bookie that is down
KINDS = {"hostname": True, "ip": False}  # what -b means of useHostNameAsBookieID


@name("listbookies", flag("rw", "readwrite"), flag("ro", "readonly"), flag("a", "all"), flag("h", "hostnames"))
def listbookies(shell: Shell, given: Namespace) -> None:
    """Lists the bookies that are writable or read-only, or all that the cluster knows."""
    chosen = one_of(given, "readwrite", "readonly", "all")

    async def work(store: "MetadataStore") -> Mapping[str, ServiceInfo | None]:
        found = await store.bookies()
        if chosen == "all":
            return {each: found.find(each) for each in {*await store.cookies(), *found.writable, *found.read_only}}
        return found.writable if chosen == "readwrite" else found.read_only

    found = shell.store(work)
    if not shell.json:
        print(HEADINGS[chosen])
    for bookie in sorted(found):
        row = row_of(bookie, found[bookie])
        output.document(shell.json, row, row_text(row))


def row_of(bookie: str, info: ServiceInfo | None) -> dict[str, str]:
    """A bookie and where it says that it is, under Apache's names."""
    host, port = UNKNOWN, 0
    if info is not None:
        with suppress(BookieHandleNotAvailable):
            host, port = info.bookie_address()
    return {"BookieID": bookie, "IP": host if host == UNKNOWN else ip_of(host), "Port": str(port), "Hostname": host}


def row_text(row: dict[str, str]) -> str:
    """Writes it as Apache's shell does."""
    return ", ".join(f"{key}:{each}" for key, each in row.items())


def ip_of(host: str) -> str:
    """The address of a host; the host where its name has none."""
    try:
        return socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return host


@name("bookieinfo")
def bookieinfo(shell: Shell, _given: Namespace) -> None:
    """Prints how full the disks of each writable bookie are, and of all together."""

    async def work(client: "Client") -> list[tuple[str, int, int]]:
        rows = []
        for bookie, info in sorted((await client.store.bookies()).writable.items()):
            answer = await client.pool.info(bookie)
            if answer.code != OK:
                output.note(f"{bookie} did not say")
                continue
            rows.append((row_text(row_of(bookie, info)), answer.free_bytes or 0, answer.total_bytes or 0))
        return rows

    rows = shell.client(work)
    for bookie, free, total in rows:
        shell.say("Free disk space info", bookie=bookie, **disk(free=free, total=total))
    shell.say("Total free disk space in the cluster", **disk(free=sum(free for _bookie, free, _total in rows)))
    shell.say("Total disk capacity in the cluster", **disk(total=sum(total for _bookie, _free, total in rows)))


def disk(**sizes: int) -> dict[str, int | str]:
    """Bytes, each as a number and as people read it."""
    found: dict[str, int | str] = {}
    for key, size in sizes.items():
        found |= {key: size, f"{key}Readable": output.size_text(size).replace(" ", "")}
    return found


@name("endpointinfo", value("b", "bookieid", metavar="ID", required=True))
def endpointinfo(shell: Shell, given: Namespace) -> None:
    """Prints what a bookie that is up announces: its properties and its addresses."""
    found = shell.store(lambda store: store.service_info(given.bookieid))
    if found is None:
        raise BookieHandleNotAvailable(f"{given.bookieid} is not up; `quire bookie list` shows those that are")
    shell.say("BookieId", bookieId=given.bookieid)
    for key, text in found.properties.items():
        shell.say("property", key=key, value=text)
    for each in found.endpoints:
        where = {"id": each.id, "protocol": each.protocol, "host": each.host, "port": each.port}
        shell.say("Endpoint", **where, auth=each.auth, extensions=each.extensions)


@name("decommissionbookie", value("bookieid", metavar="ID"))
def decommissionbookie(shell: Shell, given: Namespace) -> None:
    """Takes a bookie that is down, this machine's if none is named, out of the cluster, after copying what it held."""
    bookie = check_bookie_id(given.bookieid or shell.bookie)

    async def work(client: "Client") -> "Recovered":
        from quire.replication.decommission import decommission
        from quire.replication.lost_bookies import check_known

        await check_known(client, [bookie])
        with Shown(f"decommission {bookie}", shell.json) as shown:
            return await decommission(client, bookie, shown)

    tell(shell, "Decommissioned bookie", shell.client(work))


@name(
    "recover",
    argument("bookies"),
    flag("q", "query"),
    flag("dr", "dryrun"),
    flag("f", "force"),
    value("l", "ledger", metavar="ID"),
    flag("sk", "skipOpenLedgers"),
    flag("d", "deleteCookie"),
    flag("sku", "skipUnrecoverableLedgers"),
    value("rate", "replicationRate", metavar="BYTES", type=int),
)
def recover(shell: Shell, given: Namespace) -> None:
    """Copies what bookies that are down held to others; a ledger that fails never holds up the rest."""
    bookies = [check_bookie_id(each) for each in given.bookies.split(",")]
    ledger = None if given.ledger is None else shell.ledger(given.ledger)
    if given.query:
        query(shell, bookies)
        return
    if given.deleteCookie and (given.dryrun or given.ledger is not None or given.skipOpenLedgers):
        raise Usage(
            "-deleteCookie is for bookies that no ledger names any more: without -dryrun, -ledger, -skipOpenLedgers"
        )
    confirm(f"Recover what {', '.join(bookies)} held?", given.force or given.dryrun)

    async def work(client: "Client") -> "list[Recovered]":
        from quire.replication.concurrently import Pace
        from quire.replication.decommission import decommission
        from quire.replication.lost_bookies import check_known, recover_bookies

        await check_known(client, bookies)
        pace = Pace(client.reactor, given.replicationRate)
        with Shown("recover", shell.json) as shown:
            if given.deleteCookie:
                return [await decommission(client, each, shown, pace=pace) for each in bookies]
            fence = not given.skipOpenLedgers
            return [await recover_bookies(client, bookies, ledger, given.dryrun, shown, fence=fence, pace=pace)]

    done = shell.client(work)
    for each in done[:-1]:
        tell(shell, "Recovered bookies", each)
    tell(shell, "Would recover bookies" if given.dryrun else "Recovered bookies", done[-1])


def tell(shell: Shell, message: str, done: "Recovered") -> None:
    """Prints what was done; exit status 1 when something was not."""
    counts = {"ledgers": len(done.ledgers), "entries": done.progress.entries, "bytes": done.progress.bytes}
    shell.say(message, bookieId=done.lost, **counts, failed=len(done.failed))
    if done.failed:
        for each in done.failed[:TOLD_MAX]:
            output.note(f"quire: ledger {each.ledger}: {each.reason}")
        raise refused(f"{len(done.failed)} ledgers still name {', '.join(done.lost)}: run this again later")


def query(shell: Shell, bookies: list[str]) -> None:
    """Prints the ensembles that name one of the bookies, which have a star."""

    async def work(client: "Client") -> int:
        from quire.replication.lost_bookies import ledgers_naming

        found = await ledgers_naming(client, bookies)
        for ledger in found:
            for first, _last, ensemble in (await client.metadata(ledger)).fragment_ranges():
                starred = [f"{each}*" if each in bookies else each for each in ensemble]
                shell.say("Ensemble", ledgerId=ledger, firstEntryId=first, bookies=starred)
        return len(found)

    shell.say("Ledgers that name the bookies", bookieId=bookies, count=shell.client(work))


CHANGING = (
    value("s", "updatespersec", metavar="N", type=int, default=5),
    value("r", "maxOutstandingReads", metavar="N", type=int),
    value("l", "limit", metavar="N", type=int),
    value("v", "verbose", metavar="true|false"),
    value("p", "printprogress", metavar="SECONDS", type=int),
)


@name("updateledgers", value("b", "bookieId", metavar="hostname|ip", required=True), *CHANGING)
def updateledgers(shell: Shell, given: Namespace) -> None:
    """Names this machine's bookie, which must be down, by its new kind of id in all ledgers."""
    before, after = own_ids(shell, given.bookieId)
    change(shell, given, before, after)


@name(
    "updateBookieInLedger",
    value("sb", "srcBookie", metavar="ID", required=True),
    value("db", "destBookie", metavar="ID", required=True),
    *CHANGING,
)
def update_bookie_in_ledger(shell: Shell, given: Namespace) -> None:
    """Names one bookie instead of another, which must be down, in all ledgers; copies nothing."""
    change(shell, given, check_bookie_id(given.srcBookie), check_bookie_id(given.destBookie))


def change(shell: Shell, given: Namespace, before: str, after: str) -> None:
    """Names `after` where ledgers name `before`."""

    async def work(client: "Client") -> "Renamed":
        from quire.replication.renaming import rename_in_ledgers

        with output.ProgressBar(f"{before} becomes {after}", None, "ledgers") as progress:
            return await rename_in_ledgers(
                client, before, after, per_second=given.updatespersec, limit=given.limit, seen=progress.advance
            )

    done = shell.client(work)
    shell.say("Updated ledgers", issued=done.issued, updated=done.updated)
    if done.failed:
        for ledger, reason in done.failed[:TOLD_MAX]:
            output.note(f"quire: ledger {ledger}: {reason}")
        raise refused(f"{len(done.failed)} ledgers still name {before}")


def own_ids(shell: Shell, kind: str) -> tuple[str, str]:
    """Returns the id that this machine's bookie had, of the other kind, and the one of this kind, as configured."""
    from quire.bookie.lifecycle import ids
    from quire.conf.parts.identity import interface_address

    if kind not in KINDS:
        raise Usage(f"-bookieId is hostname or ip, not {kind!r}")
    options = shell.options
    if options.bookie_id is not None or options.advertised_address is not None:
        raise Usage(f"{shell.conf_file} sets bookieId or advertisedAddress: its id does not follow from its machine")
    if options.use_host_name is not KINDS[kind]:
        raise Usage(
            f"{shell.conf_file} must have the new kind of id first: useHostNameAsBookieID={str(KINDS[kind]).lower()}"
        )
    before = options.model_copy(update={"use_host_name": not KINDS[kind]})
    first, second = (
        ids.derive_id(each, ids.own_host(each, interface_address), each.port) for each in (before, options)
    )
    return first, second
