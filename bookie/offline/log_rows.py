"""
What is in one entry log of a bookie that does not run, record by record, for an operator in search of something.

Knows: our logs, which are Apache's too.  Does not know: how rows are printed.
Safety: nothing is changed; no lock is taken, so a running bookie's files may be in the middle of a change.
"""

import os
from collections.abc import Iterator
from typing import Any

from crc32c import crc32c

from quire.bookie.files import Files, StorageError
from quire.bookie.logs.format import HEADER, log_id, read_map
from quire.bookie.logs.walk import RECORD_BYTES_MAX, LogWalk

# SPDX-License-Identifier: Apache-2.0

Row = dict[str, Any]


def entry_log(files: Files, path: str) -> Iterator[Row]:
    """
    Header and ledgers map of one entry log, then its records: offset, ledger, entry, bytes, CRC32C.  Raises
    `StorageError`, `OSError`.
    """
    if log_id(os.path.basename(path)) is None:
        raise StorageError(f"{path} is no entry log: its name is not a hexadecimal number and .log")
    handle = files.open(path)
    try:

        def read(offset: int, count: int) -> bytes:
            return files.read(handle, count, offset)

        head = read(0, HEADER.size)
        if len(head) < HEADER.size or not head.startswith(b"BKLO"):
            raise StorageError(f"{path} at offset 0: no header of an entry log")
        _magic, version, at, count = HEADER.unpack(head)
        yield {"offset": 0, "kind": "header", "version": version, "map_offset": at, "ledgers": count}
        for ledger, size in sorted((read_map(read) or {}).items()):
            yield {"offset": at, "kind": "map", "ledger": ledger, "bytes": size}
        walk = LogWalk(read, files.size(handle), path, RECORD_BYTES_MAX)
        for ledger, entry, offset, body in walk.records():
            yield {
                "offset": offset,
                "kind": "entry",
                "ledger": ledger,
                "entry": entry,
                "bytes": len(body),
                "crc32c": f"{crc32c(body):08x}",
            }
        yield {"offset": walk.end, "kind": walk.problem or "end"}
    finally:
        files.close(handle)
