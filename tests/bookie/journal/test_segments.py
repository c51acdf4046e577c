"""Segment files: rolled, prepared, freed and used again; alone, and under a journal."""

import errno
import random
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from quire.bookie.journal import format as form
from quire.bookie.journal.format import FOOT_BYTES
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.segments import FILL_SYNC_BYTES, FIRST_SEGMENT_BYTES, SPARES_MAX, NoRoom, Segments, fill
from quire.bookie.journal.writer import Group, Journal
from quire.bookie.storage.parts import PoolWorkers
from quire.rows.files import Files
from tests.bookie.fakes.disk import Disk
from tests.bookie.fakes.journal import DIRECTORY, MIB, Listener, Story, options_of
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0


def segments_on(disk: Disk, position: int = 0) -> Segments:
    """Opened in an empty directory, without a journal around them."""
    segments = Segments(disk, DIRECTORY, position, [], [], MIB)
    segments.open()
    return segments


def test_a_roll_goes_to_the_segment_behind() -> None:
    """The next one begins where the current one ends, is opened, and has room for what is asked for."""
    disk = Disk()
    segments = segments_on(disk, 512)
    assert (segments.current.start, segments.oldest, segments.kept) == (512, 512, [segments.current])
    first = segments.current
    segments.roll(512)
    assert (segments.current.start, segments.current.size) == (first.stop, MIB)
    segments.roll(2 * MIB)
    assert segments.current.size == 2 * MIB + FOOT_BYTES
    assert [segment.start for segment in segments.kept] == [512, 512 + MIB, 512 + 2 * MIB]
    assert disk.open_files == 1
    segments.close()
    assert disk.open_files == 0
    assert not segments.prepare(), "nothing is made after the end"


def test_what_is_prepared_is_used_by_the_roll() -> None:
    """It is made once, and a roll only opens it."""
    disk = Disk()
    segments = segments_on(disk)
    assert segments.prepare()
    assert not segments.prepare()
    disk.calls.clear()
    segments.roll(512)
    assert not [call for call, _path in disk.calls if call in ("write", "sync", "rename")]
    assert segments.current.start == MIB


def test_free_keeps_what_a_replay_may_need() -> None:
    """Whole segments below the position go, the current one never; `oldest` follows."""
    segments = segments_on(Disk())
    for _ in range(3):
        segments.roll(512)
    segments.free(2 * MIB - 1)
    assert segments.oldest == MIB
    segments.free(100 * MIB)
    assert (segments.oldest, segments.kept) == (3 * MIB, [segments.current])


@pytest.mark.parametrize(
    ("number", "call", "disk_full"), [(errno.ENOSPC, "write", True), (errno.EMFILE, "open", False)]
)
def test_no_room_says_why(number: int, call: str, disk_full: bool) -> None:
    """A full disk, or descriptors that are short: `NoRoom` names the directory, and the current segment stays."""
    disk = Disk()
    segments = segments_on(disk)

    def each(made: str, path: str) -> None:
        if made == call:
            raise OSError(number, "injected", path)

    disk.each = each
    with pytest.raises(NoRoom, match=f"next segment of the journal {DIRECTORY} .injected") as raised:
        segments.roll(512)
    assert raised.value.disk_full is disk_full
    if disk_full:
        with pytest.raises(NoRoom):
            segments.prepare()
    else:
        assert not segments.prepare()
    assert segments.current.start == 0
    disk.each = lambda made, path: None
    segments.roll(512)
    assert segments.current.start == MIB
    assert disk.find(".tmp") == []


def test_segments_follow_each_other_and_double() -> None:
    """
    A group that does not fit goes to the next segment, which starts where this one ends; sizes double to the configured
    one.
    """
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
    """
    Below the mark nothing is kept but a few spares, which come back under a new name with their old groups refused by
    position.
    """
    story = Story(segment_bytes=MIB)
    for number in range(40):
        story.append(MIB // 2 - 512, number)
        story.commit()
        for spawned in story.spawned:
            spawned()
        story.spawned.clear()
        story.journal.free(story.journal.synced.start)
    names = [path.rsplit("/", 1)[1] for path in story.disk.find(".qj")]
    assert sum(name.startswith("spare-") for name in names) <= SPARES_MAX
    assert len(names) <= 5, "what was freed is used again before anything new is made"
    data = b"".join(bytes(story.disk.inodes[segment.path].data) for segment in story.journal.segments)
    assert data
    assert story.disk.find(".tmp") == []
    renames = [path for call, path in story.disk.calls if call == "rename"]
    assert len([path for path in renames if "spare-" in path]) >= 10, (
        "freed files become spares, spares become segments"
    )


def test_a_segment_is_durable_before_its_first_group() -> None:
    """Whatever comes of a power loss: a group that was handed back lies in a segment with its name."""
    story = Story(segment_bytes=MIB)
    for number in range(12):
        story.append(MIB // 2 - 512, number)
        story.commit()
        if number % 3 == 2:
            story.journal.free(story.journal.synced.start)
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


def test_a_file_that_is_used_again_has_another_salt() -> None:
    """So nothing that an earlier use left in it can pass for a group, even at its own place."""
    story = Story(segment_bytes=MIB)
    salts = set()
    for number in range(30):
        story.append(MIB // 2 - 512, number)
        story.commit()
        story.journal.free(story.journal.synced.start)
        for segment in story.journal.segments:
            foot = bytes(story.disk.inodes[segment.path].data[-512:])
            assert form.salt_of(foot, segment.start) == segment.salt
            salts.add(segment.salt)
    assert len(salts) >= 14


@pytest.mark.parametrize("call", ["open", "open directory", "rename", "unlink"])
@pytest.mark.parametrize("spares", [False, True])
def test_what_was_not_begun_at_a_roll_is_tried_again(call: str, spares: bool) -> None:
    """Silent at first, then reported as a full disk is; with descriptors all go on, and no spare is forgotten."""
    story = Story(segment_bytes=MIB)
    for token in "abc" if spares else "a":
        story.append(MIB // 2 + 1, token)
        story.commit()
    story.journal.free(story.journal.position.start)
    kept = story.disk.find(".qj")

    def each(made: str, path: str) -> None:
        if made == call and "journal" in path:
            raise OSError(errno.EMFILE, "injected", path)

    story.disk.each = each
    before = len(story.groups)
    story.append(MIB // 2 + 1, "late")
    story.commit()
    story.clock.pump([0.1] * 5)
    assert (len(story.groups), story.journal.disk_full, story.failures) in ((before, None, []), (before + 1, None, []))
    if len(story.groups) == before:
        story.clock.pump([0.1] * 30)
        assert "injected" in str(story.journal.disk_full)
        story.disk.each = lambda made, path: None
        story.clock.pump([0.1] * 5)
        assert len(story.groups) == before + 1
    assert (story.failures, story.journal.disk_full) == ([], None)
    assert len(story.disk.find(".qj")) == len(kept) + (not spares)


def test_rolling_freeing_and_preparing_at_once(tmp_path: Path) -> None:
    """
    Three threads work on the segments of one directory; no file is ever made twice or lost: the tail can be replayed
    whole.
    """

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
                workers.run(journal.free, journal.synced.start).addErrback(failures.append)
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
        await workers.run(
            journal.free, journal.synced.start
        )  # a busy machine may have handed many groups back together at the end
        workers.stop()
        journal.join()
        assert failures == []
        assert groups > 10
        replay = Replay(files, directory, None)
        assert len(list(replay.groups())) >= 1
        assert replay.position == journal.position
        assert len(files.names(directory)) <= SPARES_MAX + 6

    for _ in range(5):
        run(story)
        for path in tmp_path.iterdir():
            path.unlink()


def test_a_spare_is_never_torn_under_its_old_name() -> None:
    """
    An unused segment that replay found is written again; wherever the power goes meanwhile, every segment has a whole
    foot.
    """
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
    disk.before = lambda call, path: left.extend(
        (disk.crashed(None), disk.killed(), disk.crashed(random.Random(len(left))))
    )
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
    """
    Replay gives back a freed file and an unused next segment; the next segment is made of the first, and stays whole
    when the second is used.
    """
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
    assert again.position == journal.position


def test_a_spare_under_two_names_is_used_once() -> None:
    """A crash amid a rename may leave both: a freed segment and a spare that are one file."""
    before = Story(segment_bytes=MIB)
    for number in range(3):
        before.append(MIB - 1024, number)
        before.commit()
    position = before.journal.synced
    before.journal.free(position.start)
    disk = before.disk.crashed(None)
    freed, spare = f"{DIRECTORY}/{form.segment_name(0)}", f"{DIRECTORY}/spare-0.qj"
    inode = disk.inodes.pop(spare, None) or disk.inodes[freed]
    disk.inodes[freed] = disk.inodes[spare] = inode
    disk.durable = dict(disk.inodes)
    replay = Replay(disk, DIRECTORY, position)
    list(replay.groups())
    assert {freed, spare} <= set(replay.spares)
    journal = filled_on(disk, replay)
    again = Replay(disk.killed(), DIRECTORY, position)
    list(again.groups())
    assert again.position == journal.position


def test_spares_have_a_bound() -> None:
    """Many segments freed at once: so many are kept, the rest are removed."""
    story = Story(segment_bytes=MIB)
    for number in range(SPARES_MAX + 8):
        story.append(MIB - 1024, number)
        story.commit()
    story.journal.free(story.journal.synced.start)
    names = [path.rsplit("/", 1)[1] for path in story.disk.find(".qj")]
    assert sum(name.startswith("spare-") for name in names) == SPARES_MAX
    assert len(names) <= SPARES_MAX + 2
