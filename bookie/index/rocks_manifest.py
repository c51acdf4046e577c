"""
The records of a RocksDB manifest: which tables there are, and which logs of writes are still needed.

Each record is an edit of what the records before it say, made of fields.  Numbers (n) are varints, 7 bits a byte, the
lowest first; strings (s) stand behind their length, a number:

    1 s                     the comparator
    2 n                     the first log of writes that may hold some which are in no table
    3 n                     the next file's number; missing in the snapshot with which a manifest begins
    4 n                     the number of the last write
    6 n n                   a table that is no more: level, number
    9 n                     0
    10 n                    logs of writes below this number are not read
    103 n n n s s n n f …   a table: level, number, bytes, first and last key, first and last write in it; then fields
                            f of its own, a number and a string each, up to the number 1
    8193 s, 8200 s, 8201 s  an id; which logs of writes are gone, where RocksDB counts them; whether keys have times

A field of a table: 2 compact it soon; 3 as 10, in 8 bytes; 5, 6 times; 7, 8 a sum; 9 temperature; 12 an id; 13 when it
was made, among all; 14, 15 sizes.

Knows: these fields.  Does not know: files, and how records are kept in them (`rocks_check`).
Safety: a field that is not listed here is refused, whether RocksDB would pass over it or not: it may name what is not
looked for.
"""

from quire.protocol import varint

# SPDX-License-Identifier: Apache-2.0

COMPARATOR, LOG, NEXT_FILE, LAST_WRITE, GONE, PREVIOUS_LOG, OLDEST_LOG, TABLE = 1, 2, 3, 4, 6, 9, 10, 103
NUMBERS = {LOG, NEXT_FILE, LAST_WRITE, PREVIOUS_LOG, OLDEST_LOG}
STRINGS = {COMPARATOR, 8193, 8200, 8201}
OF_TABLE_END, OF_TABLE_OLDEST_LOG = 1, 3
OF_TABLE = {2, 5, 6, 7, 8, 9, 12, 13, 14, 15}
NUMBER_MAX = (1 << 64) - 1


def number(data: bytes, offset: int) -> tuple[int, int]:
    """The number there, and the offset behind it."""
    value, end = varint.decode(data, offset)
    if value > NUMBER_MAX:
        raise ValueError(f"the number at byte {offset} has more than 64 bits")
    return value, end


def string(data: bytes, offset: int) -> tuple[bytes, int]:
    """The string there, and the offset behind it."""
    size, begin = number(data, offset)
    if size > len(data) - begin:
        raise ValueError(f"the string at byte {offset} of {len(data)} is cut off")
    return data[begin : begin + size], begin + size


class Edit:
    """One record, decoded; `ValueError` when it is none, or has what is not known here."""

    def __init__(self, record: bytes) -> None:
        self.numbers: dict[int, int] = {}
        self.gone: list[tuple[int, int]] = []  # level, number
        self.tables: list[tuple[int, int]] = []
        self.last_in_tables = 0  # the number of the last write in one of `tables`
        offset = 0
        while offset < len(record):
            tag, offset = number(record, offset)
            if tag in NUMBERS:
                self.numbers[tag], offset = number(record, offset)
            elif tag in STRINGS:
                _text, offset = string(record, offset)
            elif tag == GONE:
                level, offset = number(record, offset)
                table, offset = number(record, offset)
                self.gone.append((level, table))
            elif tag == TABLE:
                offset = self._table(record, offset)
            else:
                raise ValueError(f"it has a field {tag}, which is not known here")
        if self.numbers.get(PREVIOUS_LOG, 0):
            raise ValueError("it has a second log of writes")

    def _table(self, record: bytes, offset: int) -> int:
        level, offset = number(record, offset)
        table, offset = number(record, offset)
        _bytes, offset = number(record, offset)
        for _key in range(2):
            _text, offset = string(record, offset)
        _first, offset = number(record, offset)
        last, offset = number(record, offset)
        self.tables.append((level, table))
        self.last_in_tables = max(self.last_in_tables, last)
        while True:
            tag, offset = number(record, offset)
            if tag == OF_TABLE_END:
                return offset
            value, offset = string(record, offset)
            if tag == OF_TABLE_OLDEST_LOG and len(value) == 8:
                self.numbers[OLDEST_LOG] = int.from_bytes(value, "little")
            elif tag not in OF_TABLE:
                raise ValueError(f"it has a table with a field {tag}, which is not known here")


class State:
    """The state that the records up to one of them describe."""

    def __init__(self) -> None:
        self.tables: set[tuple[int, int]] = set()  # level, number
        self.log = 0  # the first log of writes that may hold some which are in no table
        self.oldest_log = 0  # RocksDB reads none below
        self.in_tables = 0  # all writes up to this number are in tables
        self.had_rest = False  # and there were later ones when that was so
        self.is_begun = False  # RocksDB wants more than a snapshot
        self.is_snapshot = True  # nothing has changed `log` since the manifest was begun

    def apply(self, record: bytes) -> None:
        """The next record.  `ValueError` when it does not fit."""
        edit = Edit(record)
        for table in edit.gone:
            if table not in self.tables:
                raise ValueError(f"it takes away table {table[1]}, which is not there")
            self.tables.remove(table)
        self.tables.update(edit.tables)
        self.oldest_log = max(self.oldest_log, edit.numbers.get(OLDEST_LOG, 0))
        self.is_begun = self.is_begun or NEXT_FILE in edit.numbers
        if LOG not in edit.numbers:
            return
        self.log = edit.numbers[LOG]
        self.is_snapshot = NEXT_FILE not in edit.numbers
        if self.is_snapshot:
            return
        last = edit.numbers.get(LAST_WRITE)
        if last is None:
            raise ValueError("it does not say which write was the last")
        # What is written into a table by a flush, or by an open, is all that was not in one.
        self.in_tables = edit.last_in_tables if edit.tables else last
        self.had_rest = last > self.in_tables
