"""The look at the disks: thresholds, broken directories, room for recovery."""

import pytest

from quire.bookie.lifecycle.read_only import DiskReport, check_disks
from quire.rows.files import Files, NotBegun, Usage
from tests.bookie.fakes.wires import options

# SPDX-License-Identifier: Apache-2.0


class Disks(Files):
    def __init__(self, free: dict[str, int]) -> None:
        self.free = free

    def usage(self, path: str) -> Usage:
        if self.free[path] < 0:
            raise OSError(5, "Input/output error")
        return Usage(1, 1000, self.free[path])


@pytest.mark.parametrize(
    ("free", "reason", "nearly", "room"),
    [
        ({"/j": 500, "/l": 500}, None, [], True),
        ({"/j": 500, "/l": 99}, None, ["/l"], False),
        ({"/j": 500, "/l": 50}, None, ["/l"], False),
        ({"/j": 500, "/l": 40}, "/l is 96.0% full", [], False),
        ({"/j": 10, "/l": 500}, "/j is 99.0% full", [], True),
        ({"/j": 500, "/l": -1}, "/l can't be used (Input/output error)", [], False),
    ],
)
def test_looks_at_the_disks(free: dict[str, int], reason: str | None, nearly: list[str], room: bool) -> None:
    """Full, nearly full, broken; journals too.  Room for recovery is counted on ledger disks only."""
    report = check_disks(Disks(free), options(high_priority_free_bytes_min=100))
    assert report.reason == reason
    assert [directory for directory, _ in report.nearly_full] == nearly
    assert report.room_for_recovery is room


def test_a_full_disk_is_full_down_to_the_low_water_mark() -> None:
    """One that was not full before is not; without a low water mark the threshold is all that counts."""
    with_mark = options(disk_usage_low_water_mark=0.85)
    for free, full_before, full in (
        (40, ["/l"], True),
        (100, ["/l"], True),
        (150, ["/l"], True),
        (160, ["/l"], False),
        (100, [], False),
        (100, ["/j"], False),
    ):
        disks = Disks({"/j": 500, "/l": free})
        assert bool(check_disks(disks, with_mark, full_before).full) is full, (free, full_before)
    assert not check_disks(Disks({"/j": 500, "/l": 60}), options(), ["/l"]).full


def test_a_directory_that_failed_is_no_reason_any_more() -> None:
    """The bookie goes on without it; the others are still looked at."""
    report = DiskReport(full=(("/a", 0.99),), broken=(("/b", "EIO"), ("/c", "EIO")))
    assert report.without(["/b"]).reason == "/c can't be used (EIO)"
    assert report.without(["/b", "/c"]).reason == "/a is 99.0% full"


def test_what_the_bookie_does_without_is_not_looked_at() -> None:
    """Its disk may be full: nothing is written there; it has no room for recovery either."""
    assert check_disks(Disks({"/j": 500, "/l": 10}), options(), without=["/l"]) == DiskReport(room_for_recovery=False)


def test_a_look_that_was_not_begun_says_nothing() -> None:
    """No directory is broken by that."""

    class Short(Files):
        def usage(self, path: str) -> Usage:
            raise NotBegun(12, "Cannot allocate memory", path)

    with pytest.raises(NotBegun):
        check_disks(Short(), options())
