"""Names of entry logs and their ledgers maps."""

from quire.bookie.logs.entry_logs import EntryLogs
from quire.bookie.logs.format import log_id, log_name, newest_id
from tests.bookie.fakes.disk import Disk, records

# SPDX-License-Identifier: Apache-2.0

DIRECTORY = "/disk/ledgers/current"


def test_the_next_id_is_behind_the_largest_gap() -> None:
    """Ids wrap at 2^31 - 1; after a wrap the newest is the one in front of the largest gap, not the highest."""
    top = (1 << 31) - 1
    assert newest_id([], None) == -1
    assert newest_id([], 9) == 9
    assert newest_id([0], None) == 0
    assert newest_id([0, 1, 2], 0) == 2
    assert newest_id([0, 1, 2], 7) == 7
    assert newest_id([top - 1, top], None) == top
    assert newest_id([0, 1, top - 1, top], 1) == 1
    disk = Disk()
    disk.close(disk.open(f"{DIRECTORY}/{top:x}.log", create=True))
    logs = EntryLogs(disk, DIRECTORY, 1 << 20)
    assert logs.append(1, records(1, 0, 1))[0] == 0
    assert log_name(0x1F) == "1f.log"
    assert log_id("1f.log") == 0x1F
    for name in ("1F.log", ".log", "1f.txn", "lastId", "80000000.log", "-1.log", "1.log.compacted", "x.log"):
        assert log_id(name) is None
