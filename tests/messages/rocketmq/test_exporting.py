"""A store directory out of a log, beside the one that the log's values came from."""

from dataclasses import replace

import pytest

from quire.messages.descriptor import IMPORTING, Next, Region, Shift
from quire.messages.rocketmq.documents import offsets_of, read, topics_of
from quire.messages.rocketmq.exporting import COMPLETE, MARKER, Export
from quire.messages.rocketmq.part import PART
from quire.messages.rocketmq.ranges import first_border
from quire.protocol.message_errors import ExportRefused, StoreDamaged, StoreImporting
from tests.messages import archives
from tests.messages.exported import LONG, SIZES, Stored, blanked, tree
from tests.messages.reference import builder, parser

# SPDX-License-Identifier: Apache-2.0

F = archives.FILE_BYTES
POINTS = ("export.begun", "export.written", "export.renamed", "export.documents", "export.done")


class Killed(BaseException):
    """The process ended here."""


def of_log(files):
    return {name: data for name, data in files.items() if "/data/" in name or name.startswith("commitlog/")}


def made(tmp_path, sizes=(100,), first=0, **puts):
    """A plain store by the reference: a message of each size in queue 0 of T."""
    found = builder.Builder(tmp_path / "made", first=first)
    for size in sizes:
        found.put("T", bytes(size), **puts)
    return Stored([(at, record["raw"]) for at, record in found.records], [], first)


@pytest.mark.parametrize("name", archives.ALL)
def test_archives_come_out_as_they_were(name, tmp_path):
    """Byte for byte up to the end, outside the bodies of fillers; documents equal; and the reference reads it."""
    store = archives.unpack(name, tmp_path)
    stored = Stored.of(store)
    report = stored.export(tmp_path / "out")
    out = tree(tmp_path / "out")
    group = next((f"{path.name}/" for path in store.glob("dledger-*")), "none")
    before = {name.replace(group, "dledger-n0/"): data for name, data in of_log(tree(store)).items() if any(data)}
    assert dict(blanked(of_log(out))) == dict(blanked(before))
    assert report.files == len(before)
    assert (report.records, report.end) == (len(stored.values), stored.end)
    documents = {name: data for name, data in tree(store).items() if name.startswith("config/")}
    assert {name: out[name] for name in documents} == documents
    assert not report.unkept
    assert not any(name.endswith(PART) for name in out)
    assert list(parser.log(tmp_path / "out")) == list(parser.log(store))
    assert Stored.of(tmp_path / "out").table.save() == stored.table.save()


def killed_at(number, point=None):
    """Kills when a point, any one if None, is reached for the time of that number, from 0."""
    seen = []

    def reached(name):
        if point in (None, name):
            seen.append(name)
            if len(seen) > number:
                raise Killed(name)

    return reached


def with_expired_queue(tmp_path):
    """An upgraded store without its first file, and with a queue whose messages have all expired."""
    stored = Stored.of(archives.unpack("upgraded-killed", tmp_path))
    stored.descriptor = replace(stored.descriptor, next=(Next("gone", 3, 343),))
    stored.begin, stored.values = F, [value for value in stored.values if value[0] >= F]
    return stored


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_export_is_gone_on_with(point, tmp_path):
    """Killed at any arrival at a point, it becomes what one is that was not; it looks complete only when it is."""
    stored = with_expired_queue(tmp_path)
    stored.export(tmp_path / "whole")
    kills = 0
    for number in range(10):
        out = tmp_path / f"out-{number}"
        try:
            stored.export(out, reached=killed_at(number, point))
        except Killed:
            kills += 1
            assert (COMPLETE in (out / MARKER).read_text()) == (point == "export.done")
        stored.export(out)
        assert tree(out) == tree(tmp_path / "whole")
    assert kills == (4 if point in ("export.written", "export.renamed") else 1)


def test_killed_again_and_again(tmp_path):
    """Each try is killed at the second point it reaches; it gets to the end, though the log goes on meanwhile."""
    stored = with_expired_queue(tmp_path)
    stored.export(tmp_path / "whole")
    out = tmp_path / "out"
    with pytest.raises(Killed):
        stored.export(out, reached=killed_at(0))
    later = with_expired_queue(tmp_path)
    at = stored.descriptor.regions[-1].begin
    position = later.table.next("T", 1)
    later.values += [(at, parser.pack("T", b"later", queue=1, queue_offset=position, offset=at))]
    later.end = at + len(later.values[-1][1])
    kills = 0
    while True:
        try:
            later.export(out, reached=killed_at(1))
            break
        except Killed:
            kills += 1
    assert kills > 4
    assert tree(out) == tree(tmp_path / "whole")


def refused(stored, out, why, start=None):
    """The text of the refusal of that name; nothing was written."""
    before = tree(out) if out.exists() else None
    with pytest.raises(ExportRefused) as found:
        stored.export(out, start)
    assert found.value.why == why
    assert (tree(out) if out.exists() else None) == before
    return str(found.value)


def test_plain_records_behind_entries_need_new_offsets(tmp_path):
    """Refused whole, with the offset; what is behind them can be exported, and what is before could before the put."""
    stored = Stored.of(archives.unpack("dledger-killed-leader", tmp_path))
    at = stored.descriptor.regions[-1].begin
    position = stored.table.next("T", 0)
    stored.values += [(at, parser.pack("T", b"new", queue_offset=position, offset=at))]
    stored.end = at + len(stored.values[-1][1])
    assert f"`--from {at}` exports" in refused(stored, tmp_path / "out", "NeedsRenumber")
    stored.export(tmp_path / "out", at)
    assert [record["body"] for _at, record in parser.log(tmp_path / "out")] == [b"new"]


def test_a_log_that_begins_inside_a_file(tmp_path):
    """The refusal names the first border and the records below; only borders of the range can be given."""
    stored = Stored.of(archives.unpack("plain-clean", tmp_path))
    stored.begin = stored.values[5][0]
    text = refused(stored, tmp_path / "out", "NeedsFrom")
    assert f"`--from {F}`" in text
    assert "7 records out" in text
    for wrong in (0, 100, F + 1, stored.end, 4 * F):
        assert f"{wrong} is no offset" in refused(stored, tmp_path / "out", "NeedsFrom", wrong)
    stored.export(tmp_path / "out", 2 * F)
    assert min(of_log(tree(tmp_path / "out"))) == f"commitlog/{2 * F:020d}"
    stored.begin = 3 * F + 100
    assert f"above {4 * F}" in refused(stored, tmp_path / "none", "NothingToExport")
    stored.begin = stored.end
    refused(stored, tmp_path / "none", "NothingToExport", 4 * F)


def test_only_an_empty_directory_or_its_own_unfinished_one(tmp_path):
    """Anything else is refused with its reason, and left as it is."""
    stored, other = made(tmp_path), made(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine").write_bytes(b"")
    assert "'mine'" in refused(stored, out, "DirectoryInUse")
    assert "no directory" in refused(stored, tmp_path / "file" / "x", "DirectoryInUse", make_file(tmp_path / "file"))
    (out / "mine").unlink()
    (out / MARKER).write_text("{")
    assert "can't be read" in refused(stored, out, "DirectoryInUse")
    (out / MARKER).unlink()
    with pytest.raises(Killed):
        stored.export(out, reached=killed_at(0))
    assert "begins at 0" in refused(stored, out, "DirectoryInUse", F)
    stored.begin = F
    assert "trimmed up to 65536" in refused(stored, out, "DirectoryInUse")
    other.log = "log-2"
    assert "another store, 'orders'" in refused(other, out, "DirectoryInUse")
    stored.descriptor = replace(stored.descriptor, state=IMPORTING)
    with pytest.raises(StoreImporting, match="quire messages import"):
        stored.export(out)


def test_two_exports_at_once_into_one_directory(tmp_path):
    """The second one is refused while the first one is there, and neither touches the other's files."""
    stored = made(tmp_path, [30_000] * 3)
    stored.export(tmp_path / "alone")
    out = tmp_path / "out"
    for body in (stored.values[:1], stored.values):  # one that ends early, and the one that goes on with it
        with Export(str(out), stored.source(), sizes=SIZES) as export:
            for at, value in body:
                if export.start <= at:
                    export.take(at, value)
            assert "another export" in refused(stored, out, "DirectoryInUse")
            if body is stored.values:
                export.finish(stored.progress)
    assert tree(out) == tree(tmp_path / "alone")


def make_file(path):
    path.write_bytes(b"")


def test_the_rest_of_a_sealed_file_is_a_filler(tmp_path):
    """A broker goes on in the next file, as it would have; also behind a file that is a filler alone."""
    stored = Stored.of(archives.unpack("groups-and-fillers", tmp_path))
    assert not any(name.endswith(f"{5 * F:020d}") for name in stored.export(tmp_path / "open").settings)
    for beyond in (1, 2):
        begin = first_border(stored.end, F) + (beyond - 1) * F
        stored.descriptor = replace(stored.descriptor, regions=(Region(0, "plain"), Region(begin, "plain")))
        out = tmp_path / f"out-{beyond}"
        stored.export(out)
        fillers = [(at, left) for kind, at, left in parser.plain(out / "commitlog") if kind == "filler"]
        assert sum(fillers[-1]) == begin
        assert len(tree(out / "commitlog")) == begin // F
        with pytest.raises(Killed):
            stored.export(tmp_path / f"killed-{beyond}", reached=killed_at(begin // F - 1, "export.renamed"))
        stored.export(tmp_path / f"killed-{beyond}")
        assert tree(tmp_path / f"killed-{beyond}") == tree(out)


def whole(export, values, progress):
    for at, value in values:
        export.take(at, value)
    export.finish(progress)


def test_what_contradicts_the_layout_is_damage(tmp_path):
    """A value that is elsewhere than it says, holes, values that reach beyond a file, another layout, an early end."""
    stored = made(tmp_path, [100] * 3)
    good = stored.values

    def damaged(values, match):
        out = str(tmp_path / f"out-{match[:5]}-{len(values)}")
        with Export(out, stored.source()) as export, pytest.raises(StoreDamaged, match=match):
            whole(export, values, stored.progress)

    damaged(good[:2], "can be read up to")
    damaged([good[0], good[2]], "hole")
    damaged([good[0], good[0], *good[1:]], "comes behind")
    damaged([(0, good[1][1])], "says that it is at")
    damaged([(0, b"\0" * 200)], "neither")
    damaged([(0, good[0][1][:-9] + b"123456789")], "no message")
    big = parser.pack("T", bytes(F - 99), offset=0)
    assert len(big) == F - 7
    damaged([(0, big)], "beyond its file")
    stored = Stored.of(archives.unpack("dledger-killed-leader", tmp_path))
    stored.descriptor = replace(stored.descriptor, regions=(Region(0, "plain"),))
    damaged(stored.values, "another layout")
    stored = made(tmp_path)
    stored.document("config/../../x", b"1")
    with pytest.raises(StoreDamaged, match="no path below"):
        stored.export(tmp_path / "path")
    assert not (tmp_path / "x").exists()


def units(out, topic, queue):
    return list(parser.units(out / "consumequeue" / topic / str(queue)))


def test_positions_that_records_do_not_say(tmp_path):
    """A queue file ends just below the position: of a queue without records, and of one whose first row is shifted."""
    stored = made(tmp_path, [100] * 4, first=F)
    at = [at for at, _value in stored.values]
    values, descriptor = stored.values, stored.descriptor

    def exported(name, placed, **exceptions):
        stored.values = [
            (at, value[:20] + LONG.pack(q) + value[28:]) for (at, value), q in zip(values, placed, strict=True)
        ]
        stored.descriptor = replace(descriptor, **exceptions)
        return tmp_path / name, stored.export(tmp_path / name)

    out, report = exported("plain", [7, 8, 10, 11], shifts=(Shift("T", 0, at[2], 1),))
    assert not (out / "consumequeue").exists()
    out, report = exported("shifted", [489, 490, 491, 492], shifts=(Shift("T", 0, F, 2),), next=(Next("E", 7, 343),))
    assert units(out, "T", 0)[-1] == (486, F - 2, 1, 0)
    assert units(out, "T", 0)[0] == (400, 0, 0x7FFFFFFF, 0)
    assert units(out, "E", 7)[-1] == (342, F - 2, 1, 0)
    assert [path.stat().st_size for path in out.rglob("consumequeue/*/*/*")] == [2000, 2000]
    assert topics_of(read((out / "config/topics.json").read_bytes()))["E"]["readQueueNums"] == 8
    assert report.topics == ["E", "T"]
    out, report = exported("double", [5, 9, 10, 11], doubles=(F,))
    assert units(out, "T", 0)[-1] == (8, F - 2, 1, 0)
    out, report = exported("zero", [5, 6, 7, 8], shifts=(Shift("T", 0, F, 5),))
    assert (out / "consumequeue/T/0" / f"{0:020d}").read_bytes() == bytes(2000)
    assert not report.unkept


def test_positions_that_can_not_be_kept_are_named(tmp_path):
    """Nothing is below the first file of a log that begins at 0; batch queues have no such file."""
    stored = made(tmp_path, [100])
    descriptor = stored.descriptor
    stored.descriptor = replace(descriptor, shifts=(Shift("T", 0, 0, -3),), next=(Next("E", 1, 9), Next("../x", 0, 1)))
    assert stored.export(tmp_path / "out").unkept == [("../x", 0, 1), ("E", 1, 9), ("T", 0, 4)]
    assert not (tmp_path / "out" / "consumequeue").exists()
    stored = made(tmp_path, [100], first=F, properties=b"INNER_BASE\x017\x02INNER_NUM\x014\x02")
    stored.descriptor = replace(stored.descriptor, shifts=(Shift("T", 0, F, -7),))
    report = stored.export(tmp_path / "batch")
    assert report.unkept == [("T", 0, 11)]
    assert topics_of(read((tmp_path / "batch/config/topics.json").read_bytes()))["T"]["attributes"] == {
        "queue.type": "BatchCQ"
    }


def test_consumers_are_where_the_progress_log_says(tmp_path):
    """In the broker's own form, beside what it says otherwise; beyond the range they are at its end."""
    stored = Stored.of(archives.unpack("plain-clean", tmp_path))
    end = stored.table.next("T", 1)
    stored.consumed("again", "T", 0, 5)
    stored.consumed("mine", "T", 1, end + 10)
    stored.export(tmp_path / "out")
    written = (tmp_path / "out/config/consumerOffset.json").read_bytes()
    found = offsets_of(read(written))
    assert found[("again", "T", 0)] == 5
    assert found[("again", "T", 1)] == 4
    assert found[("mine", "T", 1)] == end
    assert b"{0:5,1:4}" in written
    assert read(written)["groupTopicMap"] == {"again": ["T", "%RETRY%again"]}


def test_documents_that_can_not_be_understood_are_kept(tmp_path):
    """Byte for byte, with a line for each in the report; timer files come sparse."""
    stored = made(tmp_path)
    stored.document("config/topics.json", b"{")
    stored.document("config/consumerOffset.json", b'{"offsetTable":7}')
    stored.document("timerlog/00000000000000000000", bytes(3 << 20) + b"t" + bytes(1 << 20))
    report = stored.export(tmp_path / "out")
    assert [line.split(":")[0] for line in report.as_found] == ["config/topics.json", "config/consumerOffset.json"]
    assert (tmp_path / "out/config/topics.json").read_bytes() == b"{"
    timer = tmp_path / "out/timerlog/00000000000000000000"
    assert timer.read_bytes() == bytes(3 << 20) + b"t" + bytes(1 << 20)
    assert timer.stat().st_blocks * 512 < 2 << 20


def test_a_complete_export_is_not_written_again(tmp_path):
    """The same command again changes nothing, and says the same settings."""
    stored = made(tmp_path)
    first = stored.export(tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")}
    again = stored.export(tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*")} == before
    assert again.settings == first.settings
    assert again.files == again.records == 0
    with Export(str(tmp_path / "out"), stored.source()) as export:
        assert export.complete
        assert export.start == export.end


def test_an_error_leaves_a_part_that_the_next_try_takes_away(tmp_path):
    """A file has its name only when it is whole."""
    stored = made(tmp_path, [30_000] * 3)
    with Export(str(tmp_path / "out"), stored.source()) as export, pytest.raises(StoreDamaged):
        whole(export, [*stored.values, (2 * F - 1, b"")], stored.progress)
    names = [name for name in tree(tmp_path / "out") if "commitlog" in name]
    assert names == [f"commitlog/{0:020d}", f"commitlog/{F:020d}{PART}"]
    stored.export(tmp_path / "out")
    assert not [name for name in tree(tmp_path / "out") if name.endswith(PART)]
