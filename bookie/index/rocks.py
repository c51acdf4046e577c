"""
RocksDB as a bookie opens it.

Knows: what an operator does when one of a bookie's two stores is damaged.  Does not know: what is in them.
"""

from functools import partial

from quire.rows.contract import Rows
from quire.rows.rocks import RocksRows

# SPDX-License-Identifier: Apache-2.0

WHAT_TO_DO = "put it back, or run `quire bookie rebuild-index --conf FILE` (with --ledgers if it is the ledger table's)"

open_rows = partial(RocksRows, what_to_do=WHAT_TO_DO)


def open_read_only(path: str) -> Rows:
    """RocksDB in a directory, for looking only."""
    return open_rows(path, read_only=True)
