"""Replay: a torn tail is cut, damage is named, and nothing that was acknowledged is ever missing."""

import errno
import os
import random

import pytest

from quire.bookie.directory import notes
from quire.bookie.journal import format as form
from quire.bookie.journal.extent import read_extent, write_extent
from quire.bookie.journal.format import START, Position
from quire.bookie.journal.mark import read_mark, write_mark
from quire.bookie.journal.replay import Replay
from quire.bookie.journal.segments import Segments
from quire.protocol.availability import decode
from quire.protocol.errors import Status
from quire.rows.files import StorageError
from tests.bookie.fakes.disk import DIGEST, KEY, Bookie, Disk, body_of, run_of

JOURNAL = "/disk/journal0/current"


def journal_path(disk: Disk) -> str:
    return next(path for path in disk.find(".qj") if path.startswith(JOURNAL))


def groups_of(disk: Disk, mark: Position | None = None, synced: bool = True) -> tuple[list[int], Replay]:
    replay = Replay(disk, JOURNAL, mark, synced)
    return [offset for _data, offset, _length in replay.groups()], replay


def three_groups() -> tuple[Disk, list[tuple[int, int]]]:
    """A disk with three groups of adds, unsealed, as kill -9 leaves it; and (offset, length) of each."""
    bookie = Bookie()
    for first in (0, 3, 6):
        bookie.storage.add(run_of(1, first, 3, v3=first == 3), first)
        bookie.clock.advance(0)
    disk = bookie.disk.killed()
    replay = Replay(disk, JOURNAL, None)
    return disk, [(offset, length) for _data, offset, length in replay.groups()]


def test_a_last_group_torn_at_any_byte_is_cut_off() -> None:
    """Whatever prefix of the last group came through, the earlier ones are replayed and writing goes on behind them."""
    disk, groups = three_groups()
    offset, length = groups[-1]
    path = journal_path(disk)
    whole = bytes(disk.inodes[path].data)
    for kept in range(length):
        if whole[offset + kept : offset + length].strip(b"\0") == b"":
            continue  # only zeros are missing: it is whole
        torn = disk.killed()
        torn.inodes[path].data[offset + kept : offset + length] = bytes(length - kept)
        found, replay = groups_of(torn)
        assert found == [at for at, _ in groups[:-1]]
        assert replay.position == Position(3, offset)
        assert (replay.torn is not None) == (kept >= form.GROUP.size), "its header shows it"
    again = Bookie(torn)
    assert [again.read(1, entry) for entry in range(8)] == [
        *(body_of(1, entry) for entry in range(6)),
        Status.ENOENTRY,
        Status.ENOENTRY,
    ]
    again.storage.add(run_of(1, 6, 1), "x")
    again.commit()
    third = Bookie(again.disk.crashed(None))
    assert third.read(1, 6) == body_of(1, 6)
    assert third.read(1, 7) is Status.ENOENTRY


def test_what_an_earlier_use_left_is_no_torn_tail() -> None:
    """A journal that ended cleanly in a file that is used again is not said to be torn."""
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    for entry in range(75):
        bookie.storage.add(run_of(1, entry, size=100_000), entry)
        bookie.commit()
        if entry % 10 == 9:
            bookie.now(bookie.storage.flush())
    bookie.close()
    disk = bookie.disk.crashed(None)
    mark = read_mark(disk, "/disk/ledgers0/current")
    assert mark is not None
    replay = Replay(disk, JOURNAL, mark[0])
    assert list(replay.groups()) == []
    segment = replay.segments[-1]
    offset = replay.position.start - segment.start
    assert any(disk.inodes[segment.path].data[offset : offset + 512]), "the file was used before"
    assert replay.torn is None


def test_a_flipped_bit_in_the_middle_is_damage() -> None:
    """
    Every summed byte of an earlier group: the start refuses and names file and offset; a flipped byte of padding does
    no harm.
    """
    disk, groups = three_groups()
    path = journal_path(disk)
    for number, (offset, length) in enumerate(groups[:-1]):
        for within in range(length):
            broken = disk.killed()
            broken.flip(path, offset + within, 1 << (within % 8))
            with pytest.raises(StorageError, match=rf"{path}.* offset {offset}\b"):
                groups_of(broken)
            del broken
        padding = disk.killed()
        padding.flip(path, offset + length)
        assert len(groups_of(padding)[0]) == 3
        assert number < 2
    broken = disk.killed()
    broken.flip(path, 30)
    with pytest.raises(StorageError, match="journal damage"):
        Bookie(broken)


def test_a_sealed_last_group_can_only_be_damaged() -> None:
    """After the idle seal the last real group is no longer taken for a torn tail."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    bookie.clock.advance(0.02)
    disk = bookie.disk.killed()
    disk.flip(journal_path(disk), 40)
    with pytest.raises(StorageError, match="journal damage"):
        groups_of(disk)


def test_a_flipped_bit_in_the_foot_is_damage() -> None:
    """Without the salt no group can be distinguished from a forged one: the start refuses and names file and offset."""
    disk, _groups = three_groups()
    path = journal_path(disk)
    size = len(disk.inodes[path].data)
    for within in range(0, 512, 3):
        broken = disk.killed()
        broken.flip(path, size - 512 + within, 1 << (within % 8))
        with pytest.raises(StorageError, match=f"{path} at offset {size - 512}"):
            groups_of(broken)


def forged(sequence: int, position: int) -> bytes:
    """
    A group as a client could write one into its entry: all of it right but for the salt, which it can only guess; it
    fences ledger 1.
    """
    fence = form.BLOCK.pack(form.FENCE, 0, 1, 0)
    return form.group_header(form.GROUP.size + len(fence), Position(sequence, position), 0, [fence]) + fence


def test_what_a_client_wrote_is_never_taken_for_a_group() -> None:
    """
    Inside a torn last group: the tail is cut, no damage is seen.  Behind the last group in a file that is used again:
    nothing follows.
    """
    disk, groups = three_groups()
    path = journal_path(disk)
    offset, length = groups[-1]
    behind = offset + form.padded(length)
    data = disk.inodes[path].data
    for at in range(behind, behind + 8192, 512):  # what a long torn group, or an earlier use of the file, left behind
        for sequence in (4, 5):
            torn = disk.killed()
            torn.inodes[path].data[at : at + 41] = forged(sequence, at)
            found, replay = groups_of(torn)
            assert len(found) == 3
            assert replay.position == Position(4, behind)
            torn.flip(path, offset + 30)
            found, replay = groups_of(torn)
            assert len(found) == 2, "a torn tail, not damage"
    salt = form.salt_of(bytes(data[-512:]), 0)
    assert salt is not None
    known = disk.killed()
    group = bytearray(forged(4, behind ^ salt))
    known.inodes[path].data[behind : behind + 41] = group
    assert len(groups_of(known)[0]) == 4, "with the salt it would pass: the salt is what keeps it out"


def test_a_missing_segment_is_damage_and_is_named() -> None:
    """In the middle: the gap is seen by the sequence.  The one with the mark: refused.  All of them: refused."""
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    for number in range(8):
        bookie.storage.add(run_of(1, number, size=400_000), number)
        bookie.commit()
    disk = bookie.disk.killed()
    segments = disk.find(".qj")
    assert len(segments) >= 4
    middle = disk.killed()
    del middle.inodes[segments[1]]
    with pytest.raises(StorageError, match=f"{os.path.basename(segments[1])} is missing"):
        groups_of(middle)
    bookie.storage.flush()
    bookie.storage.add(run_of(1, 8), "x")
    bookie.commit()
    marked = bookie.disk.killed()
    for path in marked.find(".qj"):
        del marked.inodes[path]
    with pytest.raises(StorageError, match="is missing"):
        Bookie(marked)


def several_segments() -> Disk:
    """A disk as kill -9 leaves it, without a checkpoint: several segments with groups, and one that was made ahead."""
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    for number in range(9):
        bookie.storage.add(run_of(1, number, size=400_000), number)
        bookie.commit()
    disk = bookie.disk.killed()
    assert len(disk.find(".qj")) >= 5
    newest = disk.inodes[disk.find(".qj")[-1]].data
    assert not any(newest[: -form.FOOT_BYTES])
    return disk


def test_a_missing_last_segment_is_damage_and_is_named() -> None:
    """
    The note of the newest segment shows it: the last with a group, alone or with the one that was made ahead; that one
    alone; all of them.
    """
    disk = several_segments()
    names = disk.find(".qj")
    for gone in (names[-2:-1], names[-2:], names[-1:], names):
        broken = disk.killed()
        for path in gone:
            del broken.inodes[path]
        with pytest.raises(StorageError, match=f"{os.path.basename(gone[0])} is missing.*--restore"):
            groups_of(broken)
        with pytest.raises(StorageError, match=r"is missing.*--restore"):
            Bookie(broken)


def test_a_start_that_ends_while_it_cuts_the_journal_off_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Sync was off, and a group in the middle is torn.  The note names a later segment until it is set back, and the
    segments behind the end go without leaving a gap, wherever a kill or a power loss ends the start.
    """
    disk = several_segments()
    disk.flip(disk.find(".qj")[1], 30)
    replay = groups_of(disk, START, synced=False)[1]
    ends = [disk.killed(), disk.crashed(None)]

    def unlink(path: str) -> None:
        Disk.unlink(disk, path)
        ends.extend((disk.killed(), disk.crashed(None), *(disk.crashed(random.Random(seed)) for seed in range(4))))

    monkeypatch.setattr(disk, "unlink", unlink)
    Segments(disk, JOURNAL, replay.position.start, replay.segments, replay.spares, 1 << 20).open()
    assert len(disk.find(".qj")) == len(replay.segments) == 1
    for end in [*ends, disk.crashed(None)]:
        assert groups_of(end, START, synced=False)[1].position == replay.position
    assert len(ends) > 20, "several segments went"


@pytest.mark.parametrize("ahead", [False, True])
def test_a_start_on_a_full_journal_disk_makes_nothing_there(ahead: bool) -> None:
    """However often; and groups go on into the segment that was made ahead, if there is one."""
    disk = several_segments()
    if not ahead:
        *_, last, next_one = disk.find(".qj")
        disk.unlink(next_one)
        write_extent(disk, JOURNAL, form.segment_start(os.path.basename(last)) or 0)
    names = disk.find(".qj")

    def full(call: str, path: str) -> None:
        if path.startswith(JOURNAL) and call == "write" and not path.endswith(".qj"):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    for life in range(3):
        disk = disk.crashed(None) if life % 2 else disk.killed()
        disk.before = full
        bookie = Bookie(disk, write_cache_bytes_max=64 << 20)
        assert [bookie.read(1, number) for number in range(9)] == [body_of(1, number, 400_000) for number in range(9)]
        assert disk.find(".qj") == names
    for number in range(9, 11):
        bookie.storage.add(run_of(1, number, size=400_000), number)
        bookie.commit()
    assert bookie.tokens == ([9, 10] if ahead else [9])
    assert f"no room for the next segment of the journal {JOURNAL}" in str(bookie.storage.read_only)
    again = Bookie(disk.crashed(None), write_cache_bytes_max=64 << 20)
    assert all(again.read(1, number) == body_of(1, number, 400_000) for number in range(9 + len(bookie.tokens)))


def test_a_missing_first_segment_is_damage_without_any_mark() -> None:
    """Before the first checkpoint the journal must begin at 0, also by marks of an older build, which has none yet."""
    disk = several_segments()
    for older in (False, True):
        broken = disk.killed()
        del broken.inodes[broken.find(".qj")[0]]
        if older:
            del broken.inodes["/disk/ledgers0/current/quire.mark"], broken.inodes[f"{JOURNAL}/quire.extent"]
        with pytest.raises(StorageError, match=r"position 0 \(group 1\) is missing"):
            Bookie(broken)


def test_a_missing_note_of_the_newest_segment_is_damage() -> None:
    """Not before the first group: a first start may be cut off between the segment and its note."""
    disk = several_segments()
    del disk.inodes[f"{JOURNAL}/quire.extent"]
    with pytest.raises(StorageError, match=r"quire\.extent is missing"):
        Bookie(disk)
    new = Bookie().disk.killed()
    del new.inodes[f"{JOURNAL}/quire.extent"]
    assert Bookie(new).disk.exists(f"{JOURNAL}/quire.extent")


def test_a_journal_from_before_there_was_a_note_is_read_and_gets_one() -> None:
    """Its segments have feet of version 1.  It has no mark before its first checkpoint."""
    disk = several_segments()
    for path in disk.find(".qj"):
        start = form.segment_start(os.path.basename(path))
        foot = bytes(disk.inodes[path].data[-form.FOOT_BYTES :])
        assert start is not None
        salt = form.salt_of(foot, start)
        assert salt is not None
        disk.inodes[path].data[-form.FOOT_BYTES :] = form.segment_foot(start, salt, form.UNNOTED)
    del disk.inodes["/disk/ledgers0/current/quire.mark"], disk.inodes[f"{JOURNAL}/quire.extent"]
    again = Bookie(disk)
    assert [again.read(1, number) for number in range(9)] == [body_of(1, number, 400_000) for number in range(9)]
    newest = form.segment_start(os.path.basename(again.disk.find(".qj")[-1]))
    assert read_extent(again.disk.crashed(None), JOURNAL) == newest
    assert read_mark(again.disk.crashed(None), "/disk/ledgers0/current") == [START]


def test_an_empty_journal_beside_a_directory_in_use_is_refused() -> None:
    """As an older build left it, before its first checkpoint; not where the journal is being restored."""
    bookie = Bookie()
    notes.note_running(bookie.disk, bookie.options, b"boot")
    bookie.storage.add(run_of(1, 0), "a")
    bookie.commit()
    disk = bookie.disk.killed()
    for path in [path for path in disk.inodes if path.startswith(JOURNAL)] + disk.find("quire.mark"):
        del disk.inodes[path]
    with pytest.raises(StorageError, match=f"journal {JOURNAL} is empty.*--restore"):
        Bookie(disk.killed())
    notes.note_restoring(disk, "/disk/journal0")
    assert Bookie(disk).read(1, 0) is Status.ENOLEDGER


def test_segments_that_were_freed_and_came_back_are_no_gap() -> None:
    """
    A power loss brings the names of some back, though a directory that is restored has no mark to say that they were
    freed; a gap behind the other's mark is damage all the same.
    """
    bookie = Bookie(ledgers=2, write_cache_bytes_max=64 << 20)
    first = bookie.disk.killed()
    for number in range(9):
        bookie.storage.add(run_of(0, number, size=400_000), number)
        bookie.commit()
        if number == 5:
            bookie.now(bookie.storage.flush())
    disk = bookie.disk.killed()
    name = first.find(".qj")[0]
    assert not disk.exists(name)
    disk.inodes[name] = first.inodes[name]
    del disk.inodes["/disk/ledgers1/current/quire.mark"]
    notes.note_restoring(disk, "/disk/ledgers1")
    names = disk.find(".qj")
    again = Bookie(disk.killed(), ledgers=2)
    assert [again.read(0, number) for number in range(9)] == [body_of(0, number, 400_000) for number in range(9)]
    del disk.inodes[names[-2]]
    with pytest.raises(StorageError, match=f"{os.path.basename(names[-2])} is missing"):
        Bookie(disk, ledgers=2)


def test_a_cut_segment_is_refused() -> None:
    """A file that was truncated is not taken for a smaller segment."""
    disk, _groups = three_groups()
    path = journal_path(disk)
    del disk.inodes[path].data[-100:]
    with pytest.raises(StorageError, match="multiple of 512"):
        groups_of(disk)


def test_unfinished_segments_are_removed() -> None:
    """A segment that a crash left half made is taken away; it holds nothing."""
    disk, groups = three_groups()
    disk.close(disk.open(f"{JOURNAL}/0000000000100000.qj.tmp", create=True))
    assert len(groups_of(disk)[0]) == len(groups)
    assert disk.find(".tmp") == []


def test_replay_begins_at_the_mark_and_keeps_what_is_below_as_spares() -> None:
    """Groups below the mark are not read; a mark at the very end of a segment needs no next one."""
    disk, groups = three_groups()
    found, replay = groups_of(disk, Position(2, groups[1][0]))
    assert found == [groups[1][0], groups[2][0]]
    assert replay.position.sequence == 4
    size = len(disk.inodes[journal_path(disk)].data)
    found, replay = groups_of(disk, Position(9, size))
    assert found == []
    assert replay.position == Position(9, size)
    assert [segment.stop for segment in replay.segments] == [size]
    with pytest.raises(StorageError, match="is missing"):
        groups_of(disk, Position(9, size + 512))


def test_with_sync_off_everything_behind_a_bad_group_is_cut_for_good() -> None:
    """
    Groups behind a torn one may come through a power loss; they are not replayed, not now and not after new ones were
    written.
    """
    disk, groups = three_groups()
    path = journal_path(disk)
    disk.inodes[path].data[groups[1][0] + 30 : groups[1][0] + 60] = bytes(30)
    with pytest.raises(StorageError):
        groups_of(disk)
    bookie = Bookie(disk, journal_sync_data=False)
    assert [bookie.read(1, entry) for entry in (2, 3, 6)] == [body_of(1, 2), Status.ENOENTRY, Status.ENOENTRY]
    bookie.storage.add(run_of(1, 3, 3, v3=True), "same size as the one that was cut")
    bookie.clock.advance(0)
    again = Bookie(bookie.disk.killed())
    assert [again.read(1, entry) for entry in (3, 5, 6)] == [body_of(1, 3), body_of(1, 5), Status.ENOENTRY]


def test_what_replay_accepted_is_synced_before_anything_is_built_on_it() -> None:
    """
    A group that was only in the page cache at kill -9 survives a power loss after the restart, for answers rest on it.
    """
    bookie = Bookie()
    bookie.storage.fence(3, KEY, "f")
    failing = [False]

    def before(call: str, path: str) -> None:
        if call == "sync" and failing[0]:
            raise KeyboardInterrupt

    bookie.storage.add(run_of(1, 0), "a")
    bookie.disk.before = before
    failing[0] = True
    with pytest.raises(KeyboardInterrupt):
        bookie.clock.advance(0)
    killed = bookie.disk.killed()
    for path in killed.find(".qj"):  # kill -9 leaves it in the page cache, not on the disk
        inode = killed.inodes[path]
        inode.pending, inode.durable = [(0, bytes(inode.data))], bytearray(len(inode.data))
    again = Bookie(killed)
    assert again.storage.fence(3, KEY, "g") is Status.EOK
    again.commit()
    assert again.tokens == ["g"]
    third = Bookie(again.disk.crashed(None))
    assert third.storage.add(run_of(3, 0), "x") is Status.EFENCED


def test_replay_larger_than_the_cache() -> None:
    """
    More than the write cache holds is flushed on the way; all of it can be read, and a crash during replay costs
    nothing.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20, flush_interval_ms=3_600_000)
    for number in range(120):
        bookie.storage.add(run_of(number % 3, number, size=50_000), number)
        bookie.commit()
    small = Bookie(bookie.disk.crashed(None), write_cache_bytes_max=2 << 20)
    assert small.storage.counters.replayed_entries == 120
    assert small.disk.find(".log")
    for disk in (small.disk.crashed(None), small.disk.crashed(random.Random(1))):
        again = Bookie(disk, write_cache_bytes_max=2 << 20)
        assert all(again.read(number % 3, number) == body_of(number % 3, number, 50_000) for number in range(120))


@pytest.mark.parametrize("drop", [False, True])
def test_a_ledger_that_came_again_outlives_a_replay_larger_than_the_cache(drop: bool) -> None:
    """
    It was deleted, or its copy dropped, and stored again: what is flushed on the way is that of the new one, and the
    checkpoint leaves it there.
    """
    bookie = Bookie(write_cache_bytes_max=64 << 20, flush_interval_ms=3_600_000)
    bookie.storage.add(run_of(1, 0, 3), "old")
    bookie.commit()
    bookie.now(bookie.storage.flush())
    if drop:
        bookie.storage.drop_copy(1)
    else:
        bookie.storage.delete_ledger(1, remembered=False)
    assert bookie.storage.add(run_of(1, 0, 2, size=30, recovery=drop), "new") is Status.EOK
    for ledger in range(2, 42):
        bookie.storage.add(run_of(ledger, 0, size=100_000), ledger)
    bookie.commit()
    assert "new" in bookie.tokens
    small = Bookie(bookie.disk.crashed(None), write_cache_bytes_max=2 << 20)
    assert small.disk.find(".log")[1:], "more was flushed"
    expected = [body_of(1, 0, 30), body_of(1, 1, 30), Status.ENOENTRY]
    assert [small.read(1, entry) for entry in range(3)] == expected
    assert decode(small.now(small.storage.entries(1))) == [(0, 2)]
    small.now(small.storage.flush())
    for one in (small, Bookie(small.disk.crashed(None))):
        assert [one.read(1, entry) for entry in range(3)] == expected
        assert (one.storage.add(run_of(1, 3), "x") is Status.EFENCED) == drop


def test_blocks_of_unknown_ledgers_and_kinds() -> None:
    """LAC, fence and bodies of a ledger that was deleted are passed over; a kind from the future stops the start."""
    bookie = Bookie()
    bookie.storage.add(run_of(1, 0, 2), "a")
    bookie.storage.fence(1, KEY, "b")
    bookie.storage.delete_ledger(1)
    bookie.commit()
    bookie.storage.flush()
    for rewind in (False, True):
        disk = bookie.disk.crashed(None)
        if rewind:
            write_mark(disk, "/disk/ledgers0/current", [START])
        again = Bookie(disk)
        assert again.read(1, 0) is Status.ENOLEDGER
    bookie.storage.add(run_of(2, 0), "c")
    bookie.commit()
    path = journal_path(bookie.disk)
    data = bytes(bookie.disk.inodes[path].data)
    (*_, (offset, length)) = [(at, size) for _data, at, size in Replay(bookie.disk, JOURNAL, None).groups()]
    future = form.BLOCK.pack(99, 0, 2, 0)
    position = Position(form.sequence_at(data, offset) + 1, offset + form.padded(length))
    salt = form.salt_of(data[-form.FOOT_BYTES :], 0)
    assert salt is not None
    group = form.group_header(form.GROUP.size + len(future), position, salt, [future]) + future
    bookie.disk.inodes[path].data[position.start : position.start + len(group)] = group
    with pytest.raises(StorageError, match="unknown kind 99"):
        Bookie(bookie.disk.killed())


@pytest.mark.parametrize("seed", range(25))
def test_power_loss_at_any_moment_loses_nothing_acknowledged(seed: int) -> None:
    """
    A few lives of a bookie, each ended by a power loss that keeps any part of what was not synced: acknowledged entries
    and fences stay.
    """
    rng = random.Random(seed)
    disk = Disk()
    acknowledged: dict[tuple[int, int], None] = {}
    fenced: set[int] = set()
    following = [0] * 4

    class Power(BaseException):
        pass

    for _life in range(6):
        bookie = Bookie(disk, entry_log_bytes_max=1 << 20, journals=2, ledgers=2)
        for ledger, entry in acknowledged:
            assert bookie.read(ledger, entry) == body_of(ledger, entry), (seed, ledger, entry)
        for ledger in fenced:
            assert bookie.storage.add(run_of(ledger, 10_000), "x") is Status.EFENCED
        seen = len(bookie.tokens)
        left = rng.randrange(5, 120)

        def before(call: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Power

        bookie.disk.before = before
        try:
            while True:
                ledger = rng.randrange(4)
                if rng.random() < 0.03:
                    if bookie.storage.fence(ledger, KEY, ("fence", ledger)) is Status.EOK and rng.random() < 0.2:
                        bookie.storage.write_lac(ledger, KEY, DIGEST.lac_body(ledger, 5), "lac")
                else:
                    count = rng.randrange(1, 30)
                    run = run_of(ledger, following[ledger], count, v3=rng.random() < 0.3, recovery=ledger in fenced)
                    if bookie.storage.add(run, ("add", ledger, run.first, count)) is Status.EOK:
                        following[ledger] += count
                if rng.random() < 0.5:
                    bookie.clock.advance(rng.choice([0, 0, 0.02]))
                if rng.random() < 0.1:
                    bookie.storage.flush()
                for token in bookie.tokens[seen:]:
                    if isinstance(token, tuple) and token[0] == "add":
                        acknowledged.update(
                            dict.fromkeys((token[1], entry) for entry in range(token[2], token[2] + token[3]))
                        )
                    elif isinstance(token, tuple):
                        fenced.add(token[1])
                seen = len(bookie.tokens)
        except Power:
            for token in bookie.tokens[seen:]:
                if isinstance(token, tuple) and token[0] == "add":
                    acknowledged.update(
                        dict.fromkeys((token[1], entry) for entry in range(token[2], token[2] + token[3]))
                    )
                elif isinstance(token, tuple):
                    fenced.add(token[1])
        disk = bookie.disk.crashed(rng)
    assert acknowledged


@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_first_group_is_larger_than_the_first_segment(checkpoint: bool) -> None:
    """It lies in the second, and the first stays empty: no damage, before the first mark either."""
    bookie = Bookie(write_cache_bytes_max=64 << 20)
    if checkpoint:
        bookie.now(bookie.storage.flush())
    bookie.storage.add(run_of(1, 0, size=2 << 20), "a")
    bookie.commit()
    bookie.storage.add(run_of(1, 1), "b")
    bookie.commit()
    for again in (Bookie(bookie.disk.crashed(None)), Bookie(bookie.disk.killed())):
        assert [again.read(1, entry) for entry in (0, 1, 2)] == [body_of(1, 0, 2 << 20), body_of(1, 1), Status.ENOENTRY]
        again.close()
        assert Bookie(again.disk.crashed(None)).read(1, 1) == body_of(1, 1)
