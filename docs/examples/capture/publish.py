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

    def remove(self) -> None:
        """The database is as before; what was not published is lost."""

    def close(self) -> None:
        """Ends the connection."""

    def newest(self) -> int | None:
        """The highest sequence that any change had; None while that is not known, for more will be given."""


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
            self._last = last_change(logs, log, self._owner.barrier().index)
        except BaseException:
            self._owner.close()
            raise

    def publish(self) -> int:
        """Publishes one batch, and acknowledges it: how many changes it had."""
        changes = self._table.changes(BATCH)
        self._check(changes)
        for run in runs(changes):
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

    def _check(self, changes: list[Change]) -> None:
        """
        `ValueError` where the log had other changes, or later ones, than the table: the database is then an older one,
        from a backup say, and the log would take its new changes for those that it has.
        """
        last, newest = self._last, self._table.newest()
        if last is None or last.source["capture"] != self._table.source["capture"]:
            return
        if (newest is not None and last.sequence > newest) or any(
            each.sequence == last.sequence and not same(each, last) for each in changes
        ):
            raise ValueError(
                f"the log {self.log!r} has changes that {self._table.name} never had: is the database an older copy?  "
                f"Remove the capture, and begin again: all rows are published anew"
            )
        if changes and changes[-1].sequence >= last.sequence:
            self._last = None

    def close(self) -> None:
        self._owner.close()


def same(one: Change, other: Change) -> bool:
    """True if both are the same change, whatever the file of the database is called by now."""
    return value_bytes(one._replace(source={})) == value_bytes(other._replace(source={}))


def runs(changes: list[Change]) -> list[list[Change]]:
    """Cuts changes where a sequence is left out, for one append has those of a row."""
    numbered = groupby(enumerate(changes), lambda each: each[1].sequence - each[0])
    return [[change for _place, change in run] for _gap, run in numbered]
