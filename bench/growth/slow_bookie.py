"""
A bookie's process whose every sync of a journal or log takes longer: `QUIRE_BENCH_SYNC_MS` more, as on a slower disk.

Knows: the one call that all of them go through.  Does not know: RocksDB's own syncs, which stay as they are.
"""

import os
import time

from quire.rows.files import Files
from quire.tools.daemons import bookie

# SPDX-License-Identifier: Apache-2.0

SYNC_MS = "QUIRE_BENCH_SYNC_MS"


def slow(seconds: float) -> None:
    """From now on; the wait comes before the sync and, as a system call does, lets other threads run."""
    datasync = Files.datasync

    def slower(self: Files, handle: int) -> None:
        time.sleep(seconds)
        datasync(self, handle)

    def never(self: Files, handle: int) -> bool:
        return False

    Files.datasync = slower  # type: ignore[method-assign]
    Files.syncs_writes = never  # type: ignore[method-assign]  # each sync is a call of its own


if __name__ == "__main__":
    slow(float(os.environ[SYNC_MS]) / 1e3)
    bookie.main()
