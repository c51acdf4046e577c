"""
A table of PostgreSQL (14 or newer), whose changes come from its write-ahead log by logical decoding.

    capture_<database>_<table>   a publication and a slot: what is decoded, and from where on the server keeps its log
    captured                     a row for each captured table: its id, and which sequence the changes up to an LSN have

Knows: how changes are asked for and numbered.  Does not know: logs.

Safety: transactions come in the order of their commits, the same each time; so counting on from `captured` numbers a
change the same each time.  The slot moves after `captured` has, and what `captured` is past is passed over.  The rows
that are there go through the write-ahead log themselves, as messages of one transaction, for which writers wait: so
each comes once, before all that is changed later.
"""

import re
import time
from collections.abc import Iterable
from typing import Any, LiteralString
from uuid import uuid4

import psycopg
from envelope import Change, Row
from pgoutput import transactions
from psycopg import sql

# SPDX-License-Identifier: Apache-2.0

SETTINGS = "-c extra_float_digits=1 -c bytea_output=hex -c datestyle=ISO -c timezone=UTC -c intervalstyle=postgres"
SKIPPED_BYTES = 16 << 20  # of the write-ahead log of other tables, until the slot passes it
NAME_MAX = 63
WAIT_S = 60.0
TABLE = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relreplident::text, current_database()::text,
  ARRAY(SELECT a.attname::text FROM pg_index i, unnest(i.indkey) WITH ORDINALITY k (number, place), pg_attribute a
        WHERE i.indrelid = c.oid AND i.indisprimary AND a.attrelid = c.oid AND a.attnum = k.number ORDER BY k.place),
  ARRAY(SELECT json_build_array(a.attname, a.atttypid::bigint) FROM pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s) AND c.relkind = 'r'
"""
CAPTURED = "CREATE TABLE IF NOT EXISTS captured (name text PRIMARY KEY, id text, identity text, lsn pg_lsn, seq bigint)"
# what the functions of types write, as pgoutput has it; a cast to text differs, of booleans say
COLUMN = "json_build_array({}::text, {}::bigint, CASE WHEN t.{} IS DISTINCT FROM NULL THEN format('%%s', t.{}) END)"
PEEK = """
SELECT data FROM pg_logical_slot_peek_binary_changes(
  %s, NULL, %s, 'proto_version', '1', 'publication_names', %s, 'messages', 'true')
"""

KeyedRow = tuple[str, Row, Row | None, Row | None]  # op, key, before, after


class PostgresTable:
    """A table and its slot, over a connection of its own; `begin` has to be called first."""

    def __init__(self, uri: str, table: str) -> None:
        self._db = psycopg.connect(uri, autocommit=True, options=SETTINGS)
        found = self._ask(TABLE, table)
        if not found:
            raise ValueError(f"there is no ordinary table {table!r}")
        ((self._oid, schema, self.name, self._identity, self.database, self.key, self._columns),) = found
        self._table = sql.Identifier(schema, self.name)
        self.source: Row = {"connector": "postgresql", "db": self.database, "schema": schema, "table": self.name}
        self._slot = "capture_" + re.sub(r"\W", "_", f"{self.database}_{self.name}".lower(), flags=re.ASCII)
        if len(self._slot) > NAME_MAX:
            raise ValueError(f"{self._slot} is too long as the name of a slot")
        self._acknowledged = 0  # the end of the last commit that is in the log, and the sequence of its last change
        self._sequence = 0
        self._given = (0, 0)  # the same of the last commit that was given
        self._more = True  # than was given
        self._looked = 0  # up to where nothing was found

    def begin(self) -> None:
        """Makes publication and slot, and lets the rows that are there be the first changes, where it has not yet."""
        if not self.key:
            raise ValueError(f"{self.name} has no primary key: nothing would say which row a change is of")
        if (level := self._ask("SHOW wal_level")[0][0]) != "logical":
            raise ValueError(f"wal_level of this server is {level}, and has to be logical")
        self._ask(CAPTURED)
        slots = self._ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", self._slot)
        captured = "SELECT id, lsn - '0/0'::pg_lsn, seq FROM captured WHERE name = %s"
        known = self._ask(captured, self._slot)
        if known and not slots:
            raise ValueError(f"the slot {self._slot} is gone, and changes with it: remove the capture, and begin again")
        if known and not self._ask(
            "SELECT 1 FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid "
            "WHERE p.pubname = %s AND r.prrelid = %s",
            self._slot,
            self._oid,
        ):
            raise ValueError(f"{self.name} is another table than before: remove the capture, and begin again")
        if not known:
            self._begin(bool(slots))
            known = self._ask(captured, self._slot)
        ((self.source["capture"], acknowledged, self._sequence),) = known
        self._acknowledged = int(acknowledged)
        self._given = (self._acknowledged, self._sequence)

    def changes(self, limit: int) -> list[Change]:
        """The oldest transactions that are not acknowledged, whole: more changes than `limit` if one has more."""
        now = self._written()
        if now == self._looked:
            return []
        messages = [bytes(data) for (data,) in self._decoded(PEEK, self._slot, limit, self._slot)]
        found = []
        end, sequence = self._acknowledged, self._sequence
        for each in transactions(messages, self._oid, self._slot):
            if each.end > end:
                end = each.end
                for change in self._changes(each.rows):
                    sequence += 1
                    source = {**self.source, "txId": each.xid, "lsn": each.end}
                    found.append(Change(sequence, change[0], each.ts_ms, *change[1:], source))
        self._given, self._more = (end, sequence), len(messages) >= limit
        if not found:
            self._looked = now
            if not self._more and now - self._acknowledged > SKIPPED_BYTES:
                self._pass(now, sequence)
        return found

    def acknowledge(self, sequence: int) -> None:
        """The changes that were given, up to that one, are in the log: the server may forget them."""
        end, given = self._given
        assert sequence == given, "a batch is acknowledged as a whole"
        self._pass(end, sequence)

    def newest(self) -> int | None:
        """The highest sequence that any change had; None while not all of them were given."""
        return None if self._more else self._given[1]

    def remove(self) -> None:
        """Takes away slot and publication; what was not published is lost."""
        self._decoded(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", self._slot
        )
        self._do("DROP PUBLICATION IF EXISTS {}", sql.Identifier(self._slot))
        self._ask(CAPTURED)
        found = self._ask("DELETE FROM captured WHERE name = %s RETURNING identity", self._slot)
        if not found:
            raise ValueError(f"{self.name} is not captured")
        if found[0][0] == "d":
            self._do("ALTER TABLE {} REPLICA IDENTITY DEFAULT", self._table)

    def close(self) -> None:
        self._db.close()

    def _begin(self, has_slot: bool) -> None:
        if self._identity != "f":  # or a change would not have the whole row that was before it
            self._do("ALTER TABLE {} REPLICA IDENTITY FULL", self._table)
        if not self._ask("SELECT 1 FROM pg_publication WHERE pubname = %s", self._slot):
            self._do("CREATE PUBLICATION {} FOR TABLE {}", sql.Identifier(self._slot), self._table)
        if not has_slot:
            self._ask("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", self._slot)
        columns = sql.SQL(", ").join(
            sql.SQL(COLUMN).format(name, number, sql.Identifier(name), sql.Identifier(name))
            for name, number in self._columns
        )
        read = "SELECT count(pg_logical_emit_message(true, %s, json_build_array({})::text)) FROM {} t"
        with self._db.transaction():
            self._do(
                "LOCK TABLE {} IN SHARE MODE", self._table
            )  # all that changed it is committed, and before this LSN
            new = "INSERT INTO captured VALUES (%s, %s, %s, pg_current_wal_insert_lsn(), 0)"
            self._ask(new, self._slot, uuid4().hex, self._identity)
            self._db.execute(sql.SQL(read).format(columns, self._table), (self._slot,))

    def _changes(self, rows: Iterable[tuple[str, Row | None, Row | None]]) -> list[KeyedRow]:
        """A row whose key changes is deleted and created; that a table was emptied has no key."""
        found = []
        for op, before, after in rows:
            keys = [None if row is None else {name: row[name] for name in self.key} for row in (before, after)]
            if op == "u" and keys[0] != keys[1]:
                found += [("d", keys[0] or {}, before, None), ("c", keys[1] or {}, None, after)]
            else:
                found.append((op, keys[1] or keys[0] or {}, before, after))
        return found

    def _pass(self, end: int, sequence: int) -> None:
        update = "UPDATE captured SET lsn = '0/0'::pg_lsn + %s::numeric, seq = %s WHERE name = %s"
        self._ask(update, end, sequence, self._slot)
        self._decoded("SELECT pg_replication_slot_advance(%s, '0/0'::pg_lsn + %s::numeric)", self._slot, end)
        self._acknowledged, self._sequence = end, sequence

    def _written(self) -> int:
        """Up to where the write-ahead log is on disk, and can be decoded."""
        return int(self._ask("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")[0][0])

    def _decoded(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        """Asks for what needs the slot, which the server may still have for a capture that was killed."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                return self._ask(query, *values)
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _ask(self, query: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        found = self._db.execute(query, values, prepare=False)
        return found.fetchall() if found.description else []

    def _do(self, query: LiteralString, *names: sql.Identifier) -> None:
        self._db.execute(sql.SQL(query).format(*names))
