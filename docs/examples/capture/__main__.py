"""
Change data capture: the changes of a table of SQLite or PostgreSQL, each once and in order, in a named log.

    make capture                                                 a trial here, whose processes are killed all the time
    cd docs/examples
    python capture publish --db app.db --table items             the log app.items has all changes from now on
    python capture sqlite --log app.items --to copy.db           the table in another file, kept up to date
    python capture parquet --log app.items --to DIR              the changes, and the rows that are left, as Parquet
    python capture remove --db app.db --table items              the database is as before
    python capture publish --postgres postgresql:///app --table items        the same of a database of PostgreSQL

The cluster is that of QUIRE_METADATA, or --metadata.  `publish` and `sqlite` go on until SIGINT or SIGTERM; with --once
they end when there is nothing more now.
"""

import argparse
import signal
import sqlite3
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path
from types import FrameType

from publish import Publisher, Table
from sqlite_copy import copy_to_sqlite
from sqlite_table import SQLiteTable

from quire.client import LedgerError
from quire.log import connect

# SPDX-License-Identifier: Apache-2.0

POLL_S = 0.05


def publish(given: argparse.Namespace) -> None:
    """Publishes what the tables note, until there is nothing more or for ever."""
    with ExitStack() as stack:
        tables = [stack.enter_context(closing(table_of(given, name))) for name in given.table]
        logs = stack.enter_context(connect(given.metadata))
        publishers = [
            stack.enter_context(
                closing(Publisher(logs, each, f"{given.prefix or each.source['db']}.{each.name}", force=given.force))
            )
            for each in tables
        ]
        print(f"publishing {', '.join(given.table)}", flush=True)
        while True:
            if not sum(each.publish() for each in publishers):
                if given.once:
                    return
                time.sleep(POLL_S)


def table_of(given: argparse.Namespace, name: str) -> Table:
    """A table of the database that was named."""
    if given.db is not None:
        return SQLiteTable(given.db, name)
    from postgres_table import PostgresTable

    return PostgresTable(given.postgres, name)


def remove(given: argparse.Namespace) -> None:
    for name in given.table:
        with closing(table_of(given, name)) as table:
            table.remove()


def sqlite(given: argparse.Namespace) -> None:
    with connect(given.metadata) as logs:
        copy_to_sqlite(logs, given.log, given.to, once=given.once)


def parquet(given: argparse.Namespace) -> None:
    from parquet_copy import copy_to_parquet

    with connect(given.metadata) as logs:
        changes, rows = copy_to_parquet(logs, given.log, given.to)
    print(f"{changes} changes, {rows} rows are left")


def trial(given: argparse.Namespace) -> int:
    from trial import run

    return run(given)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.set_defaults(run=trial)
    made.add_argument("--kills", type=int, default=5, help="of the trial, of each process (5)")
    made.add_argument("--postgres", metavar="URI", help="a database for the trial, instead of a file of SQLite")
    made.add_argument("--seed", type=int, help="of the trial")
    commands = made.add_subparsers(title="commands", metavar="")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--metadata", help="the cluster's metadata store; QUIRE_METADATA if not given")
    database = argparse.ArgumentParser(add_help=False)
    which = database.add_mutually_exclusive_group(required=True)
    which.add_argument("--db", type=Path, help="a file of SQLite")
    which.add_argument("--postgres", metavar="URI", help="a database of PostgreSQL: postgresql://user@host/name")
    database.add_argument("--table", action="append", required=True, help="may be given several times")
    each = commands.add_parser("publish", parents=[shared, database], help="the changes of tables into logs")
    each.add_argument("--prefix", help="of the logs' names; the database's name if not given")
    each.add_argument("--once", action="store_true", help="end when all is published")
    each.add_argument("--force", action="store_true", help="take a log from an owner that lives")
    each.set_defaults(run=publish)
    each = commands.add_parser("sqlite", parents=[shared], help="a copy in another file")
    each.add_argument("--log", required=True)
    each.add_argument("--to", type=Path, required=True, help="the file; made if it is not there")
    each.add_argument("--once", action="store_true", help="end when all is applied")
    each.set_defaults(run=sqlite)
    each = commands.add_parser("parquet", parents=[shared], help="what came since the last time, and all rows")
    each.add_argument("--log", required=True)
    each.add_argument("--to", type=Path, required=True, help="the directory; made if it is not there")
    each.set_defaults(run=parquet)
    each = commands.add_parser("remove", parents=[database], help="take triggers and outbox from the database")
    each.set_defaults(run=remove)
    return made


def failures() -> tuple[type[Exception], ...]:
    """What ends a command with a line: no store, say, or no driver.  PostgreSQL's driver is there where it was used."""
    driver = sys.modules.get("psycopg")
    return LedgerError, ValueError, ImportError, sqlite3.Error, *([] if driver is None else [driver.Error])


def stop(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    try:
        given = parser().parse_args()
        sys.exit(given.run(given))
    except KeyboardInterrupt:
        sys.exit(0)
    except failures() as failure:
        sys.exit(f"{type(failure).__name__}: {str(failure).strip()}")
