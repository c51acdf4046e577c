"""
Publishes the changes of a table to a named log, each once and in order.

The capture owns the log, appends what the table has in its outbox with the table's own producer and sequences, and
acknowledges what was answered.  Killed between these two, it appends the same again, and the log says `duplicate`.

Knows: owners and producers.  Does not know: which database it is.
"""

from itertools import groupby
from typing import Protocol

from envelope import Change, Row, change_of, key_bytes, value_bytes

from quire.log import LogExists, Logs, Owner

# SPDX-License-Identifier: Apache-2.0

BATCH = 1000


class Table(Protocol):
    """What is captured.  Sequences rise, and a change that comes again has the same one and the same content."""

    name: str
    source: Row  # what each of its changes has as source, with an id of this capture of the table

    def begin(self) -> None:
        """From now on each change of the table has a sequence; first come the rows that are there."""

    def changes(self, limit: int) -> list[Change]:
        """The oldest ones that are not acknowledged."""

    def acknowledge(self, sequence: int) -> None:
        """The changes up to that one are in the log."""

    def newest(self) -> int:
        """The highest sequence that any change had."""


def last_change(logs: Logs, log: str, end: int) -> Change | None:
    """The last change of a log that ends there; None where it has no records."""
    if end == logs.info(log).begin:
        return None
    with logs.read(log, end - 1) as reader:
        last = next(iter(reader))
        return change_of(last.key, last.value)


class Publisher:
    """One table and its log, which is made if it is not there."""

    def __init__(self, logs: Logs, table: Table, log: str, *, force: bool = False) -> None:
        self.log = log
        self._table = table
        try:
            logs.create(log, dedup=True)
        except LogExists:
            if not logs.info(log).settings["dedup"]:
                raise ValueError(f"the log {log!r} knows no producers: quire log set {log} dedup=true") from None
        self._owner: Owner = logs.own(log, force=force)
        try:
            table.begin()
            self._producer = f"capture {table.source['capture']} {table.name}"
            self._check(last_change(logs, log, self._owner.barrier().index))
        except BaseException:
            self._owner.close()
            raise

    def _check(self, last: Change | None) -> None:
        """
        `ValueError` where the log is ahead of the table, whose file is then an older one, from a backup say: its new
        changes would have sequences that the log has already.
        """
        capture = self._table.source["capture"]
        self._last = last if last is not None and last.source.get("capture") == capture else None
        if self._last is not None and self._last.sequence > self._table.newest():
            self._older()

    def _older(self) -> None:
        raise ValueError(
            f"the log {self.log!r} has changes that {self._table.name} never had: is the database an older copy?  "
            f"Remove the capture, and begin again: all rows are published anew"
        )

    def publish(self) -> int:
        """Publishes one batch, and acknowledges it: how many changes it had."""
        changes = self._table.changes(BATCH)
        for run in runs(changes):
            if self._last is not None:
                if any(each.sequence == self._last.sequence and not same(each, self._last) for each in run):
                    self._older()
                if run[-1].sequence >= self._last.sequence:
                    self._last = None
            self._owner.append_many(
                [value_bytes(each) for each in run],
                keys=[key_bytes(each) for each in run],
                times_ms=[each.ts_ms for each in run],
                producer=self._producer,
                first_sequence=run[0].sequence,
            )
        if changes:
            self._table.acknowledge(changes[-1].sequence)
        return len(changes)

    def close(self) -> None:
        self._owner.close()


def same(one: Change, other: Change) -> bool:
    """True if both are the same change, whatever the file of the database is called by now."""
    return value_bytes(one._replace(source={})) == value_bytes(other._replace(source={}))


def runs(changes: list[Change]) -> list[list[Change]]:
    """Cuts changes where a sequence is left out, for one append has those of a row."""
    numbered = groupby(enumerate(changes), lambda each: each[1].sequence - each[0])
    return [[change for _place, change in run] for _gap, run in numbered]
