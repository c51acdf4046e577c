"""The journal's writer: groups, seals, segments, faults; stepped by a clock, and once with its thread."""

import errno
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock, deferLater

from quire.bookie.files import Buffer, Files
from quire.bookie.journal import format as form
from quire.bookie.journal.format import START, Place
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.segments import FILL_SYNC_BYTES, FIRST_SEGMENT_BYTES, SPARES_MAX, fill
from quire.bookie.journal.writer import SEAL_SECONDS, Group, Journal, JournalOptions
from quire.bookie.storage.workers import PoolWorkers
from tests.bookie.fakes.disk import Disk, body_of, frame_of
from tests.reactor import reactor, run

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
        self.crowdings = 0

    def group_durable(self, group: Group) -> None:
        self.groups.append(group)
        self.durable(group)

    def journal_failed(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed(reason)

    def crowding_changed(self) -> None:
        self.crowdings += 1


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
                if length < 24 or crc32c(data[at + 8 : at + length], crc32c(data[at : at + 4])) != int.from_bytes(data[at + 4 : at + 8], "big"):
                    break
                sequence, position = (int.from_bytes(data[at + offset : at + offset + 8], "big") for offset in (8, 16))
                assert position ^ salt == start + at
                found.append((sequence, start + at, length))
                at += (length + 511) // 512 * 512
        return sorted(found)


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
    assert foot[:16] == b"QJSG" + (1).to_bytes(4, "big") + bytes(8)
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
    assert story.journal.synced == Place(3, 3072 + 512)
    assert (story.journal.groups, story.journal.syncs) == (2, 2)


def test_a_group_has_a_bound() -> None:
    """More than the limit becomes several groups, each with a sync of its own; one large item is a group by itself."""
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
    """`full` from the limit on, `relaxed` once at most half of it waits."""
    story = Story(queue_bytes_max=1000)
    for _ in range(9):
        story.append(100)
    assert not story.journal.full
    assert not story.journal.relaxed
    story.append(100)
    assert story.journal.full
    story.commit()
    assert story.journal.relaxed
    assert story.journal.queued_bytes == 0


def test_an_idle_journal_seals_once() -> None:
    """10 ms after the last group one empty group is written and synced, and then nothing happens any more."""
    story = Story()
    story.append(100, "a")
    story.commit()
    story.clock.advance(SEAL_SECONDS)
    assert story.journal.seals == 1
    assert story.whole_groups() == [(1, 0, 124), (2, 512, 24)]
    assert story.journal.synced == Place(3, 1024)
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
    """A clean stop: a synced block of kind END, told by the group, then silence."""
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


def test_segments_follow_each_other_and_double() -> None:
    """A group that does not fit goes to the next segment, which starts where this one ends; sizes double to the configured one."""
    story = Story(segment_bytes=16 * MIB)
    for number in range(30):
        story.append(MIB - 512, number)
        story.commit()
    starts = [segment.start for segment in story.journal.segments]
    sizes = [segment.size for segment in story.journal.segments]
    assert sizes == [FIRST_SEGMENT_BYTES, 8 * MIB, 16 * MIB, 16 * MIB]
    assert starts == [0, 4 * MIB, 12 * MIB, 28 * MIB]
    assert [sequence for sequence, _p, _l in story.whole_groups()] == list(range(1, 31))
    assert all(len(story.data(number)) == size for number, size in enumerate(sizes))


def test_a_group_larger_than_a_segment_gets_a_larger_segment() -> None:
    """The next segment is made larger before its first use, and the one behind it starts after it."""
    story = Story(segment_bytes=MIB)
    story.append(100, "a")
    story.commit()
    story.append(3 * MIB, "large")
    story.commit()
    story.append(MIB // 2, "b")
    story.commit()
    story.append(MIB - 100, "c")
    story.commit()
    assert [token for group in story.groups for token in group] == ["a", "large", "b", "c"]
    large = story.journal.segments[1]
    assert (large.start, large.size) == (MIB, form.padded(3 * MIB + 24) + 512)
    assert story.journal.segments[2].start == large.stop
    assert [sequence for sequence, _p, _l in story.whole_groups()] == [1, 2, 3, 4]


def test_freed_segments_are_used_again() -> None:
    """Below the mark nothing is kept but a few spares, which come back under a new name with their old groups refused by position."""
    story = Story(segment_bytes=MIB)
    for number in range(40):
        story.append(MIB // 2 - 512, number)
        story.commit()
        for spawned in story.spawned:
            spawned()
        story.spawned.clear()
        story.journal.free(story.journal.synced.position)
    names = [path.rsplit("/", 1)[1] for path in story.disk.find(".qj")]
    assert sum(name.startswith("spare-") for name in names) <= SPARES_MAX
    assert len(names) <= 5, "what was freed is used again before anything new is made"
    data = b"".join(bytes(story.disk.inodes[segment.path].data) for segment in story.journal.segments)
    assert data
    assert story.disk.find(".tmp") == []
    renames = [path for call, path in story.disk.calls if call == "rename"]
    assert len([path for path in renames if "spare-" in path]) >= 10, "freed files become spares, spares become segments"


def test_a_segment_is_durable_before_its_first_group() -> None:
    """Whatever comes of a power loss: a group that was handed back lies in a segment with its name."""
    story = Story(segment_bytes=MIB)
    for number in range(12):
        story.append(MIB // 2 - 512, number)
        story.commit()
        if number % 3 == 2:
            story.journal.free(story.journal.synced.position)
        after = story.disk.crashed(None)
        last = story.journal.segments[-1].path
        assert after.exists(last)
        assert bytes(after.inodes[last].data) == bytes(story.disk.inodes[last].data)


def test_a_new_segment_does_not_reach_the_disk_at_once() -> None:
    """Its zeros are synced in pieces, so that the sync of a group beside it waits for no more than one."""
    disk = Disk()
    handle = disk.open("/journal/segment", create=True)
    fill(disk, handle, 4096, 10 * MIB)
    unsynced = 0
    for call, _path in disk.calls:
        unsynced = unsynced + 1 if call == "write" else 0
        assert unsynced <= FILL_SYNC_BYTES // MIB, "each write is of one MiB at most"
    assert disk.inodes["/journal/segment"].data == bytearray(10 * MIB)


def test_a_group_counts_only_where_it_was_written() -> None:
    """The same bytes at another offset, or in a file with another start, are not a group: what a reused file still holds is passed over."""
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


@given(start=st.integers(0, 1 << 40), salt=st.integers(0, (1 << 64) - 1), at=st.integers(0, 511), bit=st.integers(0, 7))
def test_a_foot_is_whole_or_none(start: int, salt: int, at: int, bit: int) -> None:
    """Its salt is given out for the segment it was made for, and not after any bit of it changed, padding included."""
    foot = bytearray(form.segment_foot(start, salt))
    assert form.salt_of(bytes(foot), start) == salt
    assert form.salt_of(bytes(foot), start + 1) is None
    assert form.salt_of(bytes(foot[:-1]), start) is None
    foot[at] ^= 1 << bit
    assert form.salt_of(bytes(foot), start) is None


def test_a_file_that_is_used_again_has_another_salt() -> None:
    """So nothing that an earlier use left in it can pass for a group, even at its own place."""
    story = Story(segment_bytes=MIB)
    salts = set()
    for number in range(30):
        story.append(MIB // 2 - 512, number)
        story.commit()
        story.journal.free(story.journal.synced.position)
        for segment in story.journal.segments:
            foot = bytes(story.disk.inodes[segment.path].data[-512:])
            assert form.salt_of(foot, segment.start) == segment.salt
            salts.add(segment.salt)
    assert len(salts) >= 14


@pytest.mark.parametrize(("call", "number"), [("write", errno.EIO), ("sync", errno.EIO), ("write", errno.ENOSPC)])
def test_any_failure_is_final(call: str, number: int) -> None:
    """One failed write or sync: told once with the directory's name, nothing is handed back any more."""
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
    assert story.journal.synced == Place(2, 512)


def test_a_name_that_was_not_synced_is_synced_by_the_next_start() -> None:
    """The process ended between the rename of a new segment and the sync of its directory; what is acknowledged in it afterwards survives a power loss."""
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
    assert "no room for the next segment" in str(story.journal.crowded)
    assert story.listener.crowdings == 1
    return story


def test_a_full_disk_is_no_fault() -> None:
    """When the next segment can't be made, groups wait, unwritten and told to nobody, in order; with room all go on."""
    story = on_a_full_disk()
    story.append(MIB // 2, "c")
    story.commit()
    story.append(100, "d")
    story.clock.pump([0.1] * 30)
    assert (story.groups, story.failures) == ([["a"], ["b"]], [])
    story.disk.before = lambda call, path: None
    story.clock.pump([0.1] * 5)
    assert story.groups == [["a"], ["b"], ["c"], ["d"]]
    assert story.journal.crowded is None
    assert [sequence for sequence, _p, _l in story.whole_groups()][-1] >= 4


def test_a_full_disk_is_no_fault_of_a_large_group() -> None:
    """Where a segment must be larger than others for one group: also it waits, and has its name only when it is whole."""
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
    assert "no room for the next segment" in str(story.journal.crowded)
    assert list(Replay(story.disk.killed(), DIRECTORY, START).groups()), "what is there can be read at any time"
    story.disk.before = lambda call, path: None
    story.clock.pump([0.1] * 5)
    assert (story.groups, story.failures, story.journal.crowded) == ([["a"], ["large"]], [], None)
    assert [length > 2 * MIB for _sequence, _position, length in story.whole_groups()][:2] == [False, True]


@pytest.mark.parametrize("call", ["open", "open directory", "rename", "unlink"])
@pytest.mark.parametrize("spares", [False, True])
def test_what_was_not_begun_at_a_roll_is_tried_again(call: str, spares: bool) -> None:
    """Without a word at first, then told as a full disk is; with descriptors all go on, and no spare is forgotten."""
    story = Story(segment_bytes=MIB)
    for token in "abc" if spares else "a":
        story.append(MIB // 2 + 1, token)
        story.commit()
    story.journal.free(story.journal.place.position)
    kept = story.disk.find(".qj")

    def each(made: str, path: str) -> None:
        if made == call and "journal" in path:
            raise OSError(errno.EMFILE, "injected", path)

    story.disk.each = each
    before = len(story.groups)
    story.append(MIB // 2 + 1, "late")
    story.commit()
    story.clock.pump([0.1] * 5)
    assert (len(story.groups), story.journal.crowded, story.failures) in ((before, None, []), (before + 1, None, []))
    if len(story.groups) == before:
        story.clock.pump([0.1] * 30)
        assert "injected" in str(story.journal.crowded)
        story.disk.each = lambda made, path: None
        story.clock.pump([0.1] * 5)
        assert len(story.groups) == before + 1
    assert (story.failures, story.journal.crowded) == ([], None)
    assert len(story.disk.find(".qj")) == len(kept) + (not spares)


def test_a_stop_does_not_wait_for_room() -> None:
    """What was never acknowledged is given up; the journal is as a killed process leaves it."""
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
        while journal.crowded is None:
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
    """Without sync tokens come back after the write; `synced` stays behind until a force, a fence, an idle moment or a second has passed."""
    story = Story(sync=False, segment_bytes=MIB)
    story.clock.advance(100)
    story.append(100, "a")
    story.commit()
    assert story.journal.syncs == 1, "the first group after a long time"
    story.append(100, "b")
    story.commit()
    assert (story.groups, story.journal.syncs) == ([["a"], ["b"]], 1)
    behind = story.journal.synced
    assert behind < story.journal.place
    story.journal.force("f")
    story.commit()
    assert (story.journal.syncs, story.journal.synced) == (2, story.journal.place)
    story.journal.append((form.BLOCK.pack(form.FENCE, 0, 1, 0),), 17, "fence", "somebody")
    story.commit()
    assert story.journal.syncs == 3
    story.append(100, "c")
    story.commit()
    story.clock.advance(SEAL_SECONDS)
    assert story.journal.synced == story.journal.place
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


@given(st.lists(st.binary(min_size=16, max_size=60), min_size=1, max_size=40), st.binary(max_size=30))
def test_frames_and_bodies_are_split_as_they_were_joined(bodies: list[bytes], before: bytes) -> None:
    """Equal and unequal sizes, anywhere in a buffer; a count or an end that does not fit is refused."""
    frames = b"".join(frame_of(body) for body in bodies)
    joined = form.join_bodies(bodies)
    for data, split in ((frames, form.split_frames), (joined, form.split_bodies)):
        buffer = before + data + b"behind"
        begin, end = len(before), len(before) + len(data)
        assert split(buffer, begin, end, len(bodies)) == bodies
        for wrong in ((begin, end - 1, len(bodies)), (begin, end, len(bodies) + 1), (begin, end + 1, len(bodies))):
            with pytest.raises(ValueError, match="do not fill"):
                split(buffer, *wrong)


def test_names_of_segments() -> None:
    """Sixteen digits and a suffix; anything else is not a segment."""
    assert form.segment_name(0x1A0) == "00000000000001a0.qj"
    assert form.segment_start("00000000000001a0.qj") == 0x1A0
    for name in ("1a0.qj", "00000000000001A0.qj", "00000000000001a0.txn", "spare-00000000000.qj", "00000000000001a0.qj.tmp", "../0000000000001a0.qj"):
        assert form.segment_start(name) is None


def test_blocks_refuse_to_leave_their_group() -> None:
    """A length that points past the group is an error, not a read of what lies behind."""
    good = form.BLOCK.pack(form.KEY, 0, 5, 3) + b"key"
    data = bytes(24) + good
    assert [data[begin:end] for _k, _c, _l, begin, end in form.blocks(data, 0, len(data))] == [b"key"]
    for bad in (form.BLOCK.pack(form.KEY, 0, 5, 4) + b"key", good + b"\x03"):
        with pytest.raises(ValueError, match="past its group"):
            list(form.blocks(bytes(24) + bad, 0, 24 + len(bad)))


def test_rolling_freeing_and_preparing_at_once(tmp_path: Path) -> None:
    """Three threads work on the segments of one directory; no file is ever made twice or lost: the tail can be replayed whole."""

    async def story() -> None:
        files, directory = Files(), str(tmp_path)
        workers = PoolWorkers(reactor)
        failures: list[object] = []
        ended: Deferred[None] = Deferred()
        groups = 0

        def durable(group: Group) -> None:
            nonlocal groups
            groups += 1
            if groups % 5 == 0:
                workers.run(journal.free, journal.synced.position).addErrback(failures.append)
            if group.end:
                ended.callback(None)

        listener = Listener(durable, lambda reason: ended.errback(RuntimeError(reason)))
        replay = Replay(files, directory, None)
        journal = Journal(files, directory, reactor, replay, options_of(), listener, spawn=workers.spawn)
        journal.start()
        block = form.BLOCK.pack(form.BODIES, 0, 1, MIB // 3) + bytes(MIB // 3)
        for _ in range(100):
            journal.append((block,), len(block))
        journal.end()
        await ended
        await workers.run(journal.free, journal.synced.position)  # a busy machine may have handed many groups back together at the end
        workers.stop()
        journal.join()
        assert failures == []
        assert groups > 10
        replay = Replay(files, directory, None)
        assert len(list(replay.groups())) >= 1
        assert replay.place == journal.place
        assert len(files.names(directory)) <= SPARES_MAX + 6

    for _ in range(5):
        run(story)
        for path in tmp_path.iterdir():
            path.unlink()


def test_the_thread_keeps_the_order_and_rests(tmp_path: Path) -> None:
    """With its thread, on a real disk: every token once, in order, far fewer syncs than items; idle, it is sealed and silent."""

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
            if journal.seals and journal.synced == journal.place:
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


@pytest.mark.parametrize("at", [0, 512, 128 << 10, (128 << 10) - 512, (256 << 10) + 512, (512 << 10) - 1024])
def test_a_later_group_is_found_among_zeros(at: int) -> None:
    """Wherever it lies; from behind it on there is none, and the foot is not searched."""
    size, salt = 512 << 10, 77
    place = Place(9, at)
    group = form.group_header(form.GROUP.size + 4, place, salt, [b"abcd"]) + b"abcd"
    data = bytearray(size)
    data[at : at + len(group)] = group
    assert form.later_group(bytes(data), 0, 0, salt, 5) == at
    assert form.later_group(bytes(data), at, 0, salt, 9) == at
    assert form.later_group(bytes(data), at + 512, 0, salt, 5) is None
    assert form.later_group(bytes(data), 0, 0, salt, 10) is None
    assert form.later_group(bytes(data), 0, 0, salt + 1, 5) is None


def test_a_spare_is_never_torn_under_its_old_name() -> None:
    """An unused segment that replay found is made anew; wherever the power goes meanwhile, every segment has a whole foot."""
    before = Story(segment_bytes=MIB)
    before.append(100, "a")
    before.commit()
    before.spawned.clear()
    old = f"{DIRECTORY}/{form.segment_name(MIB)}"
    disk = before.disk.crashed(None)
    disk.close(disk.open(old, create=True))
    disk.inodes[old].write(0, bytes(MIB - 512) + form.segment_foot(MIB, 5))
    disk.inodes[old].sync()
    disk.durable[old] = disk.inodes[old]
    left: list[Disk] = []
    disk.before = lambda call, path: left.extend((disk.crashed(None), disk.killed(), disk.crashed(random.Random(len(left)))))
    replay = Replay(disk, DIRECTORY, None)
    list(replay.groups())
    assert replay.spares == [old]
    journal = Journal(disk, DIRECTORY, Clock(), replay, options_of(queue_bytes_max=MIB), Listener(), threaded=False)
    journal.start()
    journal.append((bytes(MIB - 1024),), MIB - 1024, "b")
    journal.step()
    assert journal.failure is None
    assert len(left) > 15
    for after in left:
        again = Replay(after, DIRECTORY, None)
        list(again.groups())


def filled_on(disk: Disk, replay: Replay) -> Journal:
    """A journal that went on from there through several segments, so that whatever was a spare is used."""
    journal = Journal(disk, DIRECTORY, Clock(), replay, options_of(), Listener(), threaded=False)
    journal.start()
    for number in range(12):
        journal.append((bytes(MIB // 3),), MIB // 3, number)
        journal.step()
    assert journal.failure is None
    return journal


def test_a_spare_with_a_segments_name_is_not_taken_twice() -> None:
    """Replay gives back a freed file and an unused next segment; the next segment is made of the first, and stays whole when the second is used."""
    before = Story(segment_bytes=MIB)
    before.append(100, "a")
    before.commit()
    disk = before.disk.crashed(None)
    for name, start in (("spare-0.qj", 7 * MIB), (form.segment_name(MIB), MIB)):
        path = f"{DIRECTORY}/{name}"
        disk.close(disk.open(path, create=True))
        disk.inodes[path].write(0, bytes(MIB - 512) + form.segment_foot(start, 5))
    replay = Replay(disk, DIRECTORY, None)
    list(replay.groups())
    assert len(replay.spares) == 2
    journal = filled_on(disk, replay)
    again = Replay(disk.killed(), DIRECTORY, None)
    assert len(list(again.groups())) == 13
    assert again.place == journal.place


def test_a_spare_under_two_names_is_used_once() -> None:
    """A crash amid a rename may leave both: a freed segment and a spare that are one file."""
    before = Story(segment_bytes=MIB)
    for number in range(3):
        before.append(MIB - 1024, number)
        before.commit()
    place = before.journal.synced
    before.journal.free(place.position)
    disk = before.disk.crashed(None)
    freed, spare = f"{DIRECTORY}/{form.segment_name(0)}", f"{DIRECTORY}/spare-0.qj"
    inode = disk.inodes.pop(spare, None) or disk.inodes[freed]
    disk.inodes[freed] = disk.inodes[spare] = inode
    disk.durable = dict(disk.inodes)
    replay = Replay(disk, DIRECTORY, place)
    list(replay.groups())
    assert {freed, spare} <= set(replay.spares)
    journal = filled_on(disk, replay)
    again = Replay(disk.killed(), DIRECTORY, place)
    list(again.groups())
    assert again.place == journal.place


def test_spares_have_a_bound() -> None:
    """Many segments freed at once: so many are kept, the rest are removed."""
    story = Story(segment_bytes=MIB)
    for number in range(SPARES_MAX + 8):
        story.append(MIB - 1024, number)
        story.commit()
    story.journal.free(story.journal.synced.position)
    names = [path.rsplit("/", 1)[1] for path in story.disk.find(".qj")]
    assert sum(name.startswith("spare-") for name in names) == SPARES_MAX
    assert len(names) <= SPARES_MAX + 2
