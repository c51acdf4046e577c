"""
Store directories that tests make, with the reference's builder, and archives with bytes changed.

Knows: how a directory with a given history is made.  Does not know: what is read from it.
"""

# SPDX-License-Identifier: Apache-2.0

import pathlib

from quire.messages.rocketmq.plan import make_plan
from quire.messages.rocketmq.source import Tree, Wanted
from tests.messages.reference import parser
from tests.messages.reference.builder import Builder

FILE_BYTES = 4096


def plan_of(*roots, **options):
    """The plan of directories; the group of a DLedger one is not asked for, unless its size is given."""
    options.setdefault("single", "group_size" not in options)
    in_use = options.pop("in_use", False)
    with Tree() as tree:
        return make_plan(tree, Wanted(tuple(map(str, roots)), **options), in_use=in_use)


def plain(root, positions, first=0, size=FILE_BYTES, body=b"x" * 100, **fields):
    """A plain directory with a record of queue 0 of topic T for each queue offset."""
    builder = Builder(root, size, first)
    for position in positions:
        builder.put("T", body, queue_offset=position, store_ms=position, **fields)
    builder.close()
    return builder


def entries(root, terms, first=0, size=FILE_BYTES, name="dledger-n0", body=b"x" * 100):
    """A DLedger directory with an entry of each term, in order."""
    builder = Builder(root, size, first, "dledger")
    for number, term in enumerate(terms):
        builder.term = term
        builder.put("T", body + b"%d" % term, store_ms=number)
    builder.close(name)
    return builder


def checkpoint(root, committed, name="dledger-n0"):
    """What a node says that it has committed."""
    (pathlib.Path(root) / name / "checkpoint").write_text(f"endIndex={committed}\ncommittedIndex={committed}\n")


def log_file(root, place, size=FILE_BYTES, folder="commitlog"):
    return pathlib.Path(root) / folder / f"{place - place % size:020d}"


def overwrite(root, place, data, size=FILE_BYTES, folder="commitlog"):
    """Puts bytes at an offset of the log, in a file that is there."""
    with log_file(root, place, size, folder).open("r+b") as file:
        file.seek(place % size)
        file.write(data)


def written_queue(root, units, name="consumequeue/T/0", first=0, size=2000):
    """The files of one consume queue: (physical offset, size) for each position from `first` on, blanks before."""
    directory = pathlib.Path(root) / name
    directory.mkdir(parents=True, exist_ok=True)
    begin = first * 20 - first * 20 % size
    data = parser.UNIT.pack(0, 0x7FFFFFFF, 0) * ((first * 20 - begin) // 20)
    data += b"".join(parser.UNIT.pack(offset, length, 0) for offset, length in units)
    for at in range(0, max(1, len(data)), size):
        (directory / f"{begin + at:020d}").write_bytes(data[at : at + size].ljust(size, b"\0"))
