"""A journal on a simulated disk, stepped by a clock, and a listener that keeps what it reports."""

from collections.abc import Callable
from typing import Any

from crc32c import crc32c

from quire.bookie.journal import format as form
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.writer import Group, Journal, JournalOptions
from tests.bookie.fakes.disk import Disk
from tests.clock import Clock

# SPDX-License-Identifier: Apache-2.0

DIRECTORY = "/disk/journal/current"
MIB = 1 << 20


def options_of(**changes: Any) -> JournalOptions:
    """Small sizes, and what the test changes."""
    return JournalOptions(**{"segment_bytes": MIB, "group_bytes_max": MIB, "queue_bytes_max": 64 * MIB, **changes})


class Listener:
    """Keeps what a journal reports; `durable` is called with each group, `failed` with the reason."""

    def __init__(
        self,
        durable: Callable[[Group], object] = lambda group: None,
        failed: Callable[[str], object] = lambda reason: None,
    ) -> None:
        self.groups: list[Group] = []
        self.failures: list[str] = []
        self.durable = durable
        self.failed = failed
        self.disk_full_changes = 0

    def group_durable(self, group: Group) -> None:
        self.groups.append(group)
        self.durable(group)

    def journal_failed(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed(reason)

    def disk_full_changed(self) -> None:
        self.disk_full_changes += 1


class Story:
    """A journal on a simulated disk."""

    def __init__(self, disk: Disk | None = None, replay: Replay | None = None, **changes: Any) -> None:
        self.disk = disk or Disk()
        self.clock = Clock()
        self.listener = Listener()
        self.failures = self.listener.failures
        self.spawned: list[Callable[[], None]] = []
        self.journal = Journal(
            self.disk,
            DIRECTORY,
            self.clock,
            replay or Replay(self.disk, DIRECTORY, None),
            options_of(**{"group_bytes_max": 4 * MIB, **changes}),
            self.listener,
            threaded=False,
            spawn=self.spawned.append,
        )
        self.journal.start()

    @property
    def groups(self) -> list[list[object]]:
        """The tokens of each group that was handed back."""
        return [group.tokens for group in self.listener.groups]

    def append(self, size: int, token: object = None) -> None:
        block = form.BLOCK.pack(form.BODIES, 0, 1, size - form.BLOCK.size) + bytes(size - form.BLOCK.size)
        self.journal.append((block,), size, token)

    def commit(self) -> None:
        self.clock.advance(0)

    def data(self, number: int = 0) -> bytes:
        return bytes(self.disk.inodes[self.disk.find(".qj")[number]].data)

    def whole_groups(self) -> list[tuple[int, int, int]]:
        """(sequence, position, length) of all groups from the first segment on, as an independent reader finds them."""
        found = []
        for path in self.disk.find(".qj"):
            data, start = bytes(self.disk.inodes[path].data), int(path.rsplit("/", 1)[1][:16], 16)
            salt = int.from_bytes(data[-496:-488], "big")
            at = 0
            while at < len(data):
                length = int.from_bytes(data[at : at + 4], "big")
                if length < 24 or crc32c(data[at + 8 : at + length], crc32c(data[at : at + 4])) != int.from_bytes(
                    data[at + 4 : at + 8], "big"
                ):
                    break
                sequence, position = (int.from_bytes(data[at + offset : at + offset + 8], "big") for offset in (8, 16))
                assert position ^ salt == start + at
                found.append((sequence, start + at, length))
                at += (length + 511) // 512 * 512
        return sorted(found)
