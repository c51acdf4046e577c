"""
Where a log's records are (docs/log-design.md, "Where things are"), and the names of all logs.

    clock                                   scratch
    names/<hh>/<name>                       points at a log; hh: last two hex digits of the CRC-32 of the encoded name
    logs/<id[:2]>/<id>                      the manifest; ids are random and never used again
        chunk/<n>-<8 hex>                   segments that moved out of the manifest
        owner, candidates/<token>           claims
        lease                               made with the log, deleted with it
        child/<name>                        what is built on the log keeps here, only in a log made with such records
        txn/<txn>                           a publisher's state
        intents/<txn>/<batch>-<part>-...    the ledgers of a part, named before they exist
        cursors/<name>, cursor/<id>         names and states of cursors
    adopted/<hh>/<ledger>                   plain ledgers that a log took in

Knows: these paths, and how a user's name becomes a part of one.
Does not know: what the records hold.
"""

from binascii import crc32
from collections.abc import AsyncGenerator
from urllib.parse import quote, unquote

from quire.metadata.records import NoRecord, Records
from quire.metadata.store import at_once
from quire.protocol.log_errors import LogError

# SPDX-License-Identifier: Apache-2.0

NAME_BYTES_MAX = 200  # once percent-encoded
PARTS = ("candidates", "chunk", "cursor", "cursors", "intents", "txn")  # the folders that each log has
CHILD = "child"  # the folder of child records


def encoded(name: str, what: str = "log") -> str:
    """A user's name as a part of a path; `ValueError` when it can't be one."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a {what} is a str, not {type(name).__name__}")
    made = quote(name, safe="")
    made = made.replace("~", "%7E")
    if made.strip(".") == "":
        made = made.replace(".", "%2E")
    if not 1 <= len(made) <= NAME_BYTES_MAX or any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise ValueError(
            f"{name[:100]!r} is no name of a {what}: 1 to {NAME_BYTES_MAX} bytes once percent-encoded, without control "
            "characters"
        )
    return made


def decoded(part: str) -> str:
    """The user's name that a part of a path stands for."""
    return unquote(part)


def shard(part: str) -> str:
    """Two hex digits, so that no folder has more than a 256th of all."""
    return f"{crc32(part.encode()) & 0xFF:02x}"


def name_path(name: str) -> str:
    """The path of the record that points at the log."""
    part = encoded(name)
    return f"names/{shard(part)}/{part}"


def log_path(log: str) -> str:
    """The path of the manifest of the log with that id."""
    return f"logs/{log[:2]}/{log}"


def chunk_path(log: str, chunk: str) -> str:
    """The path of a chunk."""
    return f"{log_path(log)}/chunk/{chunk}"


def child_path(log: str, child: str) -> str:
    """The path of a child record; `ValueError` for a name that can't be one."""
    return f"{log_path(log)}/{CHILD}/{encoded(child, 'child record')}"


def adopted_path(ledger: int) -> str:
    """The path of the record that says which log took a plain ledger in."""
    return f"adopted/{ledger & 0xFF:02x}/{ledger}"


SHARDS = 256
SHARDS_AT_ONCE = 32


async def children_of(records: Records, folder: str) -> AsyncGenerator[list[str], None]:
    """Yields the names in a folder, ascending, a page at a time; none where there is no such folder."""
    page = [""]
    while page := await _page(records, folder, page[-1]):
        yield page


async def sharded(records: Records, folder: str) -> AsyncGenerator[str, None]:
    """Yields the names in the shards of a folder, by shard, then by name; some shards are asked at the same time."""
    for start in range(0, SHARDS, SHARDS_AT_ONCE):
        shards = [f"{folder}/{number:02x}" for number in range(start, start + SHARDS_AT_ONCE)]
        for shard_, page in zip(shards, await at_once([_page(records, each) for each in shards]), strict=True):
            names = page
            while names:
                for name in names:
                    yield name
                names = await _page(records, shard_, names[-1])


async def _page(records: Records, folder: str, after: str = "") -> list[str]:
    try:
        return await records.children(folder, after)
    except NoRecord:
        return []


async def log_names(records: Records) -> AsyncGenerator[str, None]:
    """The names of all logs, by shard."""
    async for part in sharded(records, "names"):
        yield decoded(part)


async def refuse(records: Records) -> None:
    """`LogError` while a log has a name, for who is about to remove all records."""
    async for name in log_names(records):
        raise LogError(
            f"there are named logs, {name!r} is one; nothing was removed. `quire log list` shows them, --with-logs "
            "removes them, too"
        )
