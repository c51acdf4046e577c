"""Groups that are written and synced in one call: which ones, and that it proves no more than what it wrote."""

import errno
from collections.abc import Sequence
from typing import Any

import pytest

from quire.bookie.journal.replay import Replay
from quire.bookie.journal.writer import ONE_CALL_BYTES_MAX, SEAL_SECONDS, SYNC_OFF_SECONDS_MAX
from quire.rows.files import Buffer
from tests.bookie.fakes.disk import Disk
from tests.bookie.fakes.journal import DIRECTORY, Story

# SPDX-License-Identifier: Apache-2.0


class Told(Disk):
    """Notes how each group is synced; the kernel may refuse `refused` writes that sync themselves."""

    def __init__(self, refused: int = 0) -> None:
        super().__init__()
        self.told: list[str] = []
        self.refused = refused

    def pwritev_synced(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
        if self.refused:
            self.refused -= 1
            self.told.append("refused")
            raise OSError(errno.EOPNOTSUPP, "injected")
        self.told.append("one call")
        return super().pwritev_synced(handle, buffers, offset)

    def datasync(self, handle: int) -> None:
        self.told.append("two calls")
        super().datasync(handle)


def begun(disk: Told, **changes: Any) -> Story:
    """A journal that has opened its first segment."""
    story = Story(disk, **changes)
    disk.told.clear()
    return story


def survivors(story: Story) -> int:
    """How many groups a power loss leaves, of which nothing unsynced is kept."""
    return len(list(Replay(story.disk.crashed(None), DIRECTORY, None).groups()))


def test_small_groups_and_seals_take_one_call() -> None:
    """A large one takes two; each is counted as a sync, and each is durable when it is handed back."""
    disk = Told()
    story = begun(disk)
    for number, size in enumerate((100, ONE_CALL_BYTES_MAX, 100)):
        story.append(size, number)
        story.commit()
        assert story.groups[-1] == [number]
        assert survivors(story) == number + 1
    story.clock.advance(SEAL_SECONDS)
    assert disk.told == ["one call", "two calls", "one call", "one call"]
    assert (story.journal.syncs, story.journal.seals) == (4, 1)
    assert story.journal.synced == story.journal.position


@pytest.mark.parametrize("one_call", [True, False])
def test_a_file_system_that_is_not_known_for_it_is_not_asked(one_call: bool) -> None:
    """It might take the flag and leave the sync out."""
    disk = Told()
    disk.one_call = one_call
    story = begun(disk)
    story.append(100, "a")
    story.commit()
    assert disk.told == ["one call" if one_call else "two calls"]


def test_a_kernel_that_refuses_is_asked_once() -> None:
    """The group is written and synced as ever, and so are those behind it."""
    disk = Told(refused=1)
    story = begun(disk)
    for number in range(3):
        story.append(100, number)
        story.commit()
    assert disk.told == ["refused", *["two calls"] * 3]
    assert (story.failures, survivors(story)) == ([], 3)


def test_what_was_left_unsynced_is_synced_with_what_comes_behind_it() -> None:
    """With sync off a forced group may not be the only one that is durable; nor a seal, nor what the time demands."""
    disk = Told()
    story = begun(disk, sync=False)
    story.clock.advance(SYNC_OFF_SECONDS_MAX / 2)
    story.append(100, "first")
    story.commit()
    unsynced = disk.told == []
    story.append(100, "a")
    story.journal.force("forced")
    story.commit()
    assert unsynced
    assert disk.told == ["two calls"]
    assert story.groups[-1] == ["a", "forced"]
    assert survivors(story) == 2
    story.append(100, "b")
    story.commit()
    story.clock.advance(SEAL_SECONDS)
    assert disk.told == ["two calls", "two calls"]
    assert survivors(story) == 4, "a seal is a group, too"
