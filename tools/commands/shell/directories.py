"""
Names about the directories of this machine's bookie, most of them while it does not run.

Knows: Apache's words, and in which form it names files: a number, decimal or hexadecimal, or a path.
Does not know: formats; `bookie/` does.
"""

import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.tools.commands import bookie as commands
from quire.tools.commands import directories
from quire.tools.commands.shell.context import Shell, confirm
from quire.tools.commands.shell.names import argument, flag, name, value
from quire.tools.terminal import output
from quire.tools.terminal.options import Usage, refused

if TYPE_CHECKING:
    from quire.bookie.lifecycle.start_check import Admitted
    from quire.metadata.tree_store import MetadataStore

# SPDX-License-Identifier: Apache-2.0

FILE = argument("file")
NOT_NEEDED = (
    "is not needed: a bookie of quire takes directories of either storage over when it starts, and has one index for "
    "both; for an Apache bookie, `quire bookie export --conf FILE` writes the index of the storage that was there"
)


@name("initbookie")
def initbookie(shell: Shell, _given: Namespace) -> None:
    """Gives this machine's new bookie, whose directories are empty, its cookies."""
    from quire.bookie.lifecycle import start_check
    from quire.bookie.lifecycle.ids import IdentityError
    from quire.rows.files import Files

    options, bookie, files = shell.options, shell.bookie, Files()

    async def work(store: "MetadataStore") -> "Admitted":
        cluster = await start_check.cluster_of(store, options, files)
        if not (await start_check.check(store, options, bookie, cluster, files, write=False)).is_new:
            raise IdentityError(f"the cluster knows {bookie} already: `quire cookie show {bookie}` prints its cookie")
        return await start_check.check(store, options, bookie, cluster, files)

    shell.say("Initialized bookie", bookieId=shell.store(work).cookie.bookie)


@name("bookieformat", flag("n", "nonInteractive"), flag("f", "force"), flag("d", "deleteCookie"))
def bookieformat(shell: Shell, given: Namespace) -> None:
    """Throws away what this machine's bookie holds, its cookies included, with -deleteCookie or without."""
    if given.nonInteractive and not given.force:
        raise refused("the directories may hold entries: -nonInteractive throws them away with -force only")
    confirm(f"Throw away everything that {shell.bookie} holds?", given.nonInteractive)
    shell.doing("Formatted bookie", commands.format_bookie, shell.conf_file, yes=True)


@name("localconsistencycheck")
def localconsistencycheck(shell: Shell, _given: Namespace) -> None:
    """Reads every file of a stopped bookie, each entry against its checksum."""
    found = directories.report_of(shell.conf_file)
    for problem in found["problems"]:
        shell.say("Inconsistency", problem=problem)
    if found["problems"]:
        raise refused(f"{len(found['problems']) + found['problems_left_out']} inconsistencies")
    shell.say("Local consistency check passed", **{key: found[key] for key in ("entry_logs", "ledgers", "entries")})


@name("ledger", flag("m", "meta"), argument("ledger"))
def ledger(shell: Shell, given: Namespace) -> None:
    """Prints where a stopped bookie has each entry of a ledger; with -meta size, fence and whether it has a key."""
    from quire.bookie.offline import listing

    wanted = shell.ledger(given.ledger)
    with directories.stopped_bookie(shell.conf_file) as stopped:
        for pair in stopped.pairs:
            row, places = listing.ledger_in(stopped.files, pair, wanted)
            if given.meta and row is not None:
                shell.say("Ledger", ledgerId=wanted, fenced=row.fenced, hasMasterKey=any(row.key))
            for entry, place in places:
                log, at = place >> 32, place & 0xFFFFFFFF
                document = {"ledgerId": shell.ledger_text(wanted), "entry": entry, "log": log, "pos": at}
                output.document(shell.json, document, f"entry {entry}\t:\t(log: {log}, pos: {at})")


@name(
    "readlog",
    FILE,
    flag("m", "msg"),
    value("l", "ledgerid", metavar="ID"),
    value("e", "entryid", metavar="N", type=int),
    value("sp", "startpos", metavar="N", type=int),
    value("ep", "endpos", metavar="N", type=int),
)
def readlog(shell: Shell, given: Namespace) -> None:
    """Prints the records of an entry log: a path, or its number, in decimal."""
    of = None if given.ledgerid is None else shell.ledger(given.ledgerid)
    low, high = given.startpos or 0, given.endpos if given.endpos is not None else 1 << 62
    for row in log_rows(log_path(shell, given.file, 10), bodies_wanted=given.msg):
        if row["kind"] != "entry" or of not in (None, row["ledger"]) or not low <= row["offset"] <= high:
            continue
        if given.entryid in (None, row["entry"]):
            data = shell.entry_text(row["body"]) if given.msg else None
            place = {"entryId": row["entry"], "position": row["offset"], "entrySize": row["bytes"]}
            shell.say("Entry", ledgerId=row["ledger"], **place, data=data)


@name("readlogmetadata", FILE)
def readlogmetadata(shell: Shell, given: Namespace) -> None:
    """Prints how much of an entry log is whose: a path, or its number, in hexadecimal digits."""
    path = log_path(shell, given.file, 16)
    sizes = sizes_in(path)
    shell.say("Entry log", logId=Path(path).stem, totalSize=sum(sizes.values()))
    for each, size in sorted(sizes.items()):
        shell.say("Ledger", ledgerId=each, size=size)


@name(
    "activeledgers",
    value("l", "logId", metavar="HEX", required=True),
    value("t", "timeout", metavar="MS", type=int, default=1000),
)
def activeledgers(shell: Shell, given: Namespace) -> None:
    """Prints the ledgers of an entry log that the cluster still has, and how much of the log they are."""
    sizes = sizes_in(log_path(shell, given.logId, 16))
    gone = set(shell.store(lambda store: store.absent_ledgers(sorted(sizes))))
    living = {each: size for each, size in sizes.items() if each not in gone}
    total = sum(sizes.values())
    usage = round(sum(living.values()) / total, 4) if total else 0.0
    shell.say("Entry log", logId=given.logId, usage=usage, totalSize=total, activeSize=sum(living.values()))
    for each, size in sorted(living.items()):
        shell.say("Active ledger", ledgerId=each, size=size)


@name("readjournal", FILE, value("dir", metavar="DIR"), flag("m", "msg"))
def readjournal(shell: Shell, given: Namespace) -> None:
    """Prints the records of a journal file: a path, or its number, in hexadecimal digits."""
    from quire.bookie.offline import listing
    from quire.rows.files import Files

    files = Files()
    for row in listing.journal(files, journal_path(shell, given.file, given.dir), given.msg):
        of, kind, at = row.get("ledger"), row["kind"], row["offset"]
        if kind != "adds":
            shell.say("META", ledgerId=of, kind=kind, position=at) if of is not None else shell.say(kind, position=at)
            continue
        for number, entry in enumerate(range(row["first"], row["first"] + row["count"])):
            body = row["bodies"][number] if given.msg else None
            size, data = (None, None) if body is None else (len(body), shell.entry_text(bytes(body)))
            shell.say("Entry", ledgerId=of, entryId=entry, position=at, entrySize=size, data=data)


@name("lastmark")
def lastmark(shell: Shell, _given: Namespace) -> None:
    """Prints where the next start's replay of each journal begins; also while the bookie runs."""
    from quire.bookie.offline.listing import last_marks
    from quire.rows.files import Files

    for file, position in last_marks(Files(), shell.options):
        number = int(file.partition(".")[0], 16)
        document = {"journalId": number, "file": file, "position": position}
        output.document(shell.json, document, f"LastLogMark : Journal Id - {number}({file}), Pos - {position}")


@name("listfilesondisc", flag("txn", "journal"), flag("log", "entrylog"), flag("idx", "index"))
def listfilesondisc(shell: Shell, given: Namespace) -> None:
    """Lists the files of this machine's bookie: journals, entry logs, indexes, or all of them."""
    from quire.bookie.offline.listing import files_of
    from quire.rows.files import Files

    chosen = [word for word in ("journal", "entrylog", "index") if getattr(given, word)]
    for kind, paths in files_of(Files(), shell.options).items():
        if chosen and kind not in chosen:
            continue
        if not shell.json:
            print(f"--------- Printing the list of {kind} files ---------")
        for path in paths:
            output.document(shell.json, {"kind": kind, "file": path}, path)


@name("convert-to-db-storage")
def convert_to_db_storage(_shell: Shell, _given: Namespace) -> None:
    """Refuses, for nothing has to be converted."""
    raise refused(f"convert-to-db-storage {NOT_NEEDED}")


@name("convert-to-interleaved-storage")
def convert_to_interleaved_storage(_shell: Shell, _given: Namespace) -> None:
    """Refuses, for nothing has to be converted."""
    raise refused(f"convert-to-interleaved-storage {NOT_NEEDED}")


@name(
    "regenerate-interleaved-storage-index-file",
    value("l", "ledgerIds", metavar="IDS"),
    flag("dryRun"),
    value("password", metavar="PASSWORD"),
    value("b64password", metavar="PASSWORD"),
)
def regenerate_interleaved_storage_index_file(_shell: Shell, _given: Namespace) -> None:
    """Refuses, for the index is rebuilt as a whole, and needs no ledger's password for that."""
    raise refused(
        "regenerate-interleaved-storage-index-file is not needed: `quire bookie rebuild-index --conf FILE` reads all "
        "entry logs and needs no password; `quire bookie export` then writes the index files for an Apache bookie"
    )


@name("rebuild-db-ledger-locations-index")
def rebuild_db_ledger_locations_index(shell: Shell, _given: Namespace) -> None:
    """Rebuilds the index of a stopped bookie from its entry logs."""
    directories_rebuilt(shell, ledgers=False)


@name("rebuild-db-ledgers-index", flag("v", "verbose"))
def rebuild_db_ledgers_index(shell: Shell, _given: Namespace) -> None:
    """Rebuilds the ledger table of a stopped bookie, and its index: every ledger fenced."""
    directories_rebuilt(shell, ledgers=True)


def directories_rebuilt(shell: Shell, ledgers: bool) -> None:
    shell.doing("Rebuilt index", directories.rebuild_index, shell.conf_file, ledgers=ledgers)


@name("check-db-ledgers-index", flag("v", "verbose"))
def check_db_ledgers_index(shell: Shell, given: Namespace) -> None:
    """Reads the ledger table of a stopped bookie to its end."""
    from quire.bookie.layout import LEDGERS
    from quire.bookie.offline import listing

    with directories.stopped_bookie(shell.conf_file) as stopped:
        for pair in stopped.pairs:
            rows = [row for row in listing.index(stopped.files, os.path.join(pair.rows, LEDGERS)) if "fenced" in row]
            for row in rows if given.verbose else ():
                shell.say("Ledger", ledgerId=row["ledger"], fenced=row["fenced"])
            shell.say("Checked ledgers index", directory=pair.rows, ledgers=len(rows))


def log_rows(path: str, bodies_wanted: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of an entry log."""
    from quire.bookie.offline import listing
    from quire.rows.files import Files

    return listing.entry_log(Files(), path, bodies_wanted)


def sizes_in(path: str) -> dict[int, int]:
    """How many bytes of each ledger an entry log has, as its map says, or its records."""
    mapped: dict[int, int] = {}
    counted: dict[int, int] = {}
    for row in log_rows(path):
        if row["kind"] == "map":
            mapped[row["ledger"]] = row["bytes"]
        elif row["kind"] == "entry":
            if mapped:
                break
            counted[row["ledger"]] = counted.get(row["ledger"], 0) + row["bytes"] + 4  # the size is before it
    return mapped or counted


def log_path(shell: Shell, text: str, base: int) -> str:
    """The entry log that a word of the command line means; `Usage`."""
    from quire.bookie.layout import current
    from quire.bookie.logs.format import log_name

    if os.sep in text or Path(text).is_file():
        return text
    stem, base = (text.removesuffix(".log"), 16) if text.endswith(".log") else (text, base)
    return found(text, [current(each, log_name(number_in(stem, base))) for each in shell.options.ledger_directories])


def journal_path(shell: Shell, text: str, directory: str | None) -> str:
    """The journal file that a word of the command line means; `Usage`."""
    from quire.bookie.apache.journal import journal_name
    from quire.bookie.journal.format import segment_name
    from quire.bookie.layout import current

    if os.sep in text or Path(text).is_file():
        return text
    number = number_in(Path(text).stem, 16)
    where = [directory] if directory is not None else [current(each) for each in shell.options.journal_directories]
    return found(text, [os.path.join(each, make(number)) for each in where for make in (segment_name, journal_name)])


def number_in(text: str, base: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        raise Usage(f"{text!r} is neither a file nor a number in base {base}") from None


def found(text: str, paths: list[str]) -> str:
    """The first of them that is there; `Usage`."""
    for path in paths:
        if Path(path).is_file():
            return path
    raise Usage(f"{text} is not there: looked for {', '.join(paths)}; `quire shell listfilesondisc` lists all")
