"""The journal's writer: groups, seals, faults; stepped by a clock, and with its thread."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from crc32c import crc32c
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from quire.bookie.journal import format as form
from quire.bookie.journal.format import START, Position
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.writer import SEAL_SECONDS, Group, Journal
from quire.rows.files import Buffer, Files
from tests.bookie.fakes.disk import Disk, body_of, frame_of
from tests.bookie.fakes.journal import DIRECTORY, MIB, Listener, Story, options_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def test_a_group_on_disk_is_as_drawn() -> None:
    """Header, blocks, padding: read back by hand."""
    story = Story()
    frame = frame_of(body_of(7, 0))
    story.journal.append((form.BLOCK.pack(form.FRAMES, 1, 7, len(frame)), frame), 17 + len(frame), "t")
    assert story.groups == []
    story.commit()
    assert story.groups == [["t"]]
    data = story.data()
    assert len(data) == MIB
    length = 24 + 17 + len(frame)
    assert data[:4] == length.to_bytes(4, "big")
    foot = data[-512:]
    assert foot[:16] == b"QJSG" + (2).to_bytes(4, "big") + bytes(8)
    assert foot[24:] == crc32c(foot[:24]).to_bytes(4, "big") + bytes(484)
    assert any(foot[16:24])
    assert data[8:24] == (1).to_bytes(8, "big") + foot[16:24], "the position is 0"
    assert data[24:41] == b"\x01" + (1).to_bytes(4, "big") + (7).to_bytes(8, "big") + len(frame).to_bytes(4, "big")
    assert data[41:length] == frame
    assert not any(data[length:-512])
    assert story.whole_groups() == [(1, 0, length)]
    after = story.disk.crashed(None)
    assert [bytes(after.inodes[path].data) for path in after.find(".qj")] == [data]


def test_what_is_queued_is_one_group_and_the_next_begins_aligned() -> None:
    """Each commit takes all that waits; sequences rise by one, positions are multiples of 512."""
    story = Story()
    for number in range(30):
        story.append(100, number)
    story.commit()
    story.append(17, "x")
    story.commit()
    assert story.groups == [list(range(30)), ["x"]]
    assert story.whole_groups() == [(1, 0, 24 + 3000), (2, 3072, 24 + 17)]
    assert story.journal.synced == Position(3, 3072 + 512)
    assert (story.journal.groups, story.journal.syncs) == (2, 2)


def test_a_group_has_a_bound() -> None:
    """More than the limit becomes several groups, each with a sync of its own; one large item is a group of its own."""
    story = Story(group_bytes_max=1000, segment_bytes=MIB)
    for number in range(25):
        story.append(100, number)
    story.append(5000, "large")
    story.append(100, "last")
    story.commit()
    assert [len(group) for group in story.groups] == [10, 10, 5, 1, 1]
    assert [token for group in story.groups for token in group] == [*range(25), "large", "last"]
    assert story.journal.syncs == 5


def test_queued_bytes_bound_what_waits() -> None:
    """`full` from the limit on, `has_room` once at most half of it waits."""
    story = Story(queue_bytes_max=1000)
    for _ in range(9):
        story.append(100)
    assert not story.journal.full
    assert not story.journal.has_room
    story.append(100)
    assert story.journal.full
    story.commit()
    assert story.journal.has_room
    assert story.journal.queued_bytes == 0


def test_an_idle_journal_seals_once() -> None:
    """10 ms after the last group one empty group is written and synced, and then nothing happens any more."""
    story = Story()
    story.append(100, "a")
    story.commit()
    story.clock.advance(SEAL_SECONDS)
    assert story.journal.seals == 1
    assert story.whole_groups() == [(1, 0, 124), (2, 512, 24)]
    assert story.journal.synced == Position(3, 1024)
    assert story.clock.getDelayedCalls() == []
    story.disk.calls.clear()
    story.clock.advance(1000)
    assert story.disk.calls == []
    assert story.groups == [["a"]]
    story.append(100, "b")
    story.commit()
    story.clock.advance(SEAL_SECONDS)
    assert [sequence for sequence, _position, _length in story.whole_groups()] == [1, 2, 3, 4]


def test_the_end_is_a_group_of_its_own_kind_and_needs_no_seal() -> None:
    """A clean stop: a synced block of kind END, which the group reports, then nothing more."""
    story = Story()
    story.append(100, "a")
    story.commit()
    story.journal.end()
    story.commit()
    assert [group.end for group in story.listener.groups] == [False, True]
    data = story.data()
    assert list(form.blocks(data, 512, 24 + 17)) == [(form.END, 0, 0, 512 + 24 + 17, 512 + 24 + 17)]
    story.clock.advance(1)
    assert story.journal.seals == 0
    story.journal.join()
    assert story.disk.open_files == 0


def test_a_group_counts_only_where_it_was_written() -> None:
    """
    The same bytes at another offset, or in a file with another start, are not a group: what a reused file still holds
    is passed over.
    """
    story = Story()
    for number in range(3):
        story.append(100, number)
        story.commit()
    data = story.data()
    salt = form.salt_of(data[-512:], 0)
    assert salt is not None
    assert form.whole(data, 512, 0, salt, 2) == 124
    assert form.whole(data, 512, 0, salt, None) == 124
    assert form.whole(data, 512, 0, salt, 3) == 0
    assert form.whole(data, 512, 0, salt + 1, 2) == 0
    assert form.whole(data, 512, MIB, salt, 2) == 0
    assert form.whole(data[512:], 0, 0, salt, 2) == 0
    assert form.whole(data, MIB - 10, 0, salt, None) == 0
    assert form.later_group(data, 512, 0, salt, 3) == 1024
    assert form.later_group(data, 512, MIB, salt, 1) is None
    assert form.later_group(data, 0, 0, salt, 4) is None


@pytest.mark.parametrize(("call", "number"), [("write", errno.EIO), ("sync", errno.EIO), ("write", errno.ENOSPC)])
def test_any_failure_is_final(call: str, number: int) -> None:
    """One failed write or sync: reported once with the directory's name, nothing is handed back any more."""
    story = Story()
    story.append(100, "a")
    story.commit()

    def before(made: str, path: str) -> None:
        if made == call:
            raise OSError(number, "injected")

    story.disk.before = before
    story.append(100, "b")
    story.commit()
    story.disk.before = lambda made, path: None
    story.append(100, "c")
    story.clock.advance(5)
    assert story.groups == [["a"]]
    assert len(story.failures) == 1
    assert DIRECTORY in story.failures[0]
    assert story.journal.synced == Position(2, 512)


def test_a_name_that_was_not_synced_is_synced_by_the_next_start() -> None:
    """
    The process ended between the rename of a new segment and the sync of its directory; what is acknowledged in it
    afterwards survives a power loss.
    """
    disk = Disk()

    def before(call: str, path: str) -> None:
        if call == "sync directory":
            raise OSError(errno.EIO, "injected")

    disk.before = before
    with pytest.raises(OSError, match="injected"):
        Story(disk)
    disk.before = lambda call, path: None
    disk.process_ended()
    replay = Replay(disk, DIRECTORY, None)
    assert list(replay.groups()) == []
    story = Story(disk, replay)
    story.append(100, "a")
    story.commit()
    assert story.groups == [["a"]]
    assert len(list(Replay(disk.crashed(None), DIRECTORY, None).groups())) == 1


def on_a_full_disk() -> Story:
    """One segment of which more than a quarter is used, and no room for the next."""
    story = Story(segment_bytes=MIB)
    story.append(MIB // 2, "a")
    story.commit()

    def before(call: str, path: str) -> None:
        if call == "write" and path.endswith(".tmp"):
            raise OSError(errno.ENOSPC, "injected")

    story.disk.before = before
    (prepare,) = story.spawned
    prepare()
    story.append(1000, "b")
    story.commit()
    assert story.failures == []
    assert "no room for the next segment" in str(story.journal.disk_full)
    assert story.listener.disk_full_changes == 1
    return story


def test_a_full_disk_is_no_fault() -> None:
    """When the next segment can't be made, groups wait in order, unwritten and unacknowledged; with room all go on."""
    story = on_a_full_disk()
    story.append(MIB // 2, "c")
    story.commit()
    story.append(100, "d")
    story.clock.pump([0.1] * 30)
    assert (story.groups, story.failures) == ([["a"], ["b"]], [])
    story.disk.before = lambda call, path: None
    story.clock.pump([0.1] * 5)
    assert story.groups == [["a"], ["b"], ["c"], ["d"]]
    assert story.journal.disk_full is None
    assert [sequence for sequence, _p, _l in story.whole_groups()][-1] >= 4


def test_a_full_disk_is_no_fault_of_a_large_group() -> None:
    """
    Where a segment must be larger than others for one group: also it waits, and has its name only when it is whole.
    """
    story = Story(segment_bytes=MIB)
    story.append(MIB // 2, "a")
    story.commit()
    (prepare,) = story.spawned
    prepare()  # the next one is there, and too small

    def before(call: str, path: str) -> None:
        if call == "write":
            assert "spare" in path or path.endswith(".tmp"), f"{path} has its name and is written to"
            raise OSError(errno.ENOSPC, "injected")

    story.disk.before = before
    story.append(2 * MIB, "large")
    story.commit()
    story.clock.pump([0.1] * 30)
    assert (story.groups, story.failures) == ([["a"]], [])
    assert "no room for the next segment" in str(story.journal.disk_full)
    assert list(Replay(story.disk.killed(), DIRECTORY, START).groups()), "what is there can be read at any time"
    story.disk.before = lambda call, path: None
    story.clock.pump([0.1] * 5)
    assert (story.groups, story.failures, story.journal.disk_full) == ([["a"], ["large"]], [], None)
    assert [length > 2 * MIB for _sequence, _position, length in story.whole_groups()][:2] == [False, True]


def test_a_stop_does_not_wait_for_room() -> None:
    """What was never acknowledged is dropped; the journal is as a killed process leaves it."""
    story = on_a_full_disk()
    story.append(MIB // 2, "c")
    story.commit()
    story.journal.end()
    story.clock.pump([0.1] * 5)
    assert story.groups == [["a"], ["b"]]
    assert len(story.failures) == 1
    assert "no room" in story.failures[0]


def test_a_thread_waits_for_room_and_goes_on(tmp_path: Path) -> None:
    """The same on a real disk with the journal's own thread; also the seal of an idle journal waits."""
    full = [True]

    class Filling(Files):
        def pwritev(self, handle: int, buffers: Sequence[Buffer], offset: int) -> int:
            if full[0] and os.readlink(f"/proc/self/fd/{handle}").endswith(".tmp"):
                raise OSError(errno.ENOSPC, "injected")
            return super().pwritev(handle, buffers, offset)

    async def story() -> None:
        full[0] = False
        files, directory = Filling(), str(tmp_path)
        groups: list[list[object]] = []
        came: list[Deferred[None]] = [Deferred() for _ in range(4)]

        def durable(group: Group) -> None:
            if group.tokens:
                came[len(groups)].callback(None)
                groups.append(group.tokens)

        replay, options = Replay(files, directory, None), options_of(queue_bytes_max=8 * MIB)
        journal = Journal(files, directory, reactor, replay, options, Listener(durable))
        journal.start()
        full[0] = True
        block = form.BLOCK.pack(form.BODIES, 0, 1, 700_000) + bytes(700_000)
        journal.append((block,), len(block), "a")
        await came[0]
        journal.append((block,), len(block), "b")
        while journal.disk_full is None:
            await deferLater(reactor, 0.01, lambda: None)
        assert groups == [["a"]]
        full[0] = False
        await came[1]
        assert journal.failure is None
        journal.end()
        journal.join()

    run(story)


def test_short_writes_do_not_tear_groups() -> None:
    """A system that takes two thirds of each write still gets whole groups."""
    story = Story()
    story.disk.short = True
    for number in range(3):
        story.append(3000, number)
        story.commit()
    assert [sequence for sequence, _p, _l in story.whole_groups()] == [1, 2, 3]


def test_sync_off_syncs_when_asked_on_rolls_and_when_idle() -> None:
    """
    Without sync tokens come back after the write; `synced` stays behind until a force, a fence, an idle moment or a
    second has passed.
    """
    story = Story(sync=False, segment_bytes=MIB)
    story.clock.advance(100)
    story.append(100, "a")
    story.commit()
    assert story.journal.syncs == 1, "the first group after a long time"
    story.append(100, "b")
    story.commit()
    assert (story.groups, story.journal.syncs) == ([["a"], ["b"]], 1)
    behind = story.journal.synced
    assert behind < story.journal.position
    story.journal.force("f")
    story.commit()
    assert (story.journal.syncs, story.journal.synced) == (2, story.journal.position)
    story.journal.append((form.BLOCK.pack(form.FENCE, 0, 1, 0),), 17, "fence", "token")
    story.commit()
    assert story.journal.syncs == 3
    story.append(100, "c")
    story.commit()
    story.clock.advance(SEAL_SECONDS)
    assert story.journal.synced == story.journal.position
    story.journal.force("nothing to sync")
    syncs = story.journal.syncs
    story.commit()
    assert story.groups[-1] == ["nothing to sync"]
    assert story.journal.syncs == syncs


def test_who_must_hear_of_a_sync_comes_with_their_group() -> None:
    """Who set a fence is named by the group that made it durable, which is synced also with sync off."""
    story = Story()
    called: list[str] = []
    fenced = called.clear
    story.journal.append((form.BLOCK.pack(form.FENCE, 0, 1, 0),), 17, None, fenced)
    assert story.listener.groups == []
    story.commit()
    assert [group.when_synced for group in story.listener.groups] == [[fenced]]


def test_the_thread_keeps_the_order_and_rests(tmp_path: Path) -> None:
    """
    With its thread, on a real disk: every token once, in order, far fewer syncs than items; idle, it is sealed and
    silent.
    """

    async def story() -> None:
        directory = str(tmp_path)
        tokens: list[object] = []
        done: Deferred[None] = Deferred()
        ended: Deferred[None] = Deferred()

        def durable(group: Group) -> None:
            tokens.extend(group.tokens)
            if len(tokens) == 5000 and not done.called:
                done.callback(None)
            if group.end:
                ended.callback(None)

        listener = Listener(durable, lambda reason: done.errback(RuntimeError(reason)))
        journal = Journal(Files(), directory, reactor, Replay(Files(), directory, None), options_of(), listener)
        journal.start()
        block = form.BLOCK.pack(form.BODIES, 0, 1, 483) + bytes(483)
        for number in range(5000):
            journal.append((block,), 500, number)
        await done
        assert tokens == list(range(5000))
        assert journal.groups < 1000
        sealed: Deferred[None] = Deferred()

        def look() -> None:
            if journal.seals and journal.synced == journal.position:
                sealed.callback(None)
            else:
                reactor.callLater(0.005, look)

        look()
        await sealed
        assert journal.syncs == journal.groups + journal.seals
        journal.end()
        await ended
        journal.join()
        assert journal.seals == 1

    run(story)
