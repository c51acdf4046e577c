"""Imports: all that the source has is in the store, once, also when runs were killed; the source stays as it was."""

import hashlib
import os
import pathlib
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial

import pytest
from twisted.internet.defer import CancelledError, Deferred

from quire.messages.descriptor import READY, USE, Next
from quire.messages.progress import LONG, Consumed, offset_key
from quire.messages.rocketmq.importing import Importing, planned
from quire.messages.rocketmq.plan import make_plan
from quire.messages.rocketmq.source import Tree, Wanted
from quire.protocol.log_errors import LogFenced, LogTrimmed
from quire.protocol.message_errors import ImportRefused
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import Doomed
from tests.messages.archives import BROKERS, unpack
from tests.messages.reference import parser
from tests.messages.rocketmq.imports import NAME, held, imported, unnamed
from tests.messages.rocketmq.made import FILE_BYTES, entries, overwrite, plain, written_queue
from tests.metadata.stories import failing
from tests.reactor import reactor, run
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "1"))
POINTS = {
    **dict.fromkeys(("import.created", "import.table", "import.documents", "import.ready"), 1),
    **dict.fromkeys(("import.part", "import.committed"), 5),
    **dict.fromkeys(("part.intended", "part.written", "publish.done"), 2),
}


def story_of(coroutine):
    return Deferred.fromCoroutine(coroutine)


def documents_of(root):
    """The documents of a directory, byte for byte."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(pathlib.Path(root).rglob("*"))
        if path.is_file() and path.relative_to(root).parts[0] in ("config", "timerlog", "timerwheel")
    }


def values_of(root):
    """(place, bytes) of each record, or of each entry of DLedger."""
    old, groups = parser.parts(root)
    found = [(at, record["raw"]) for kind, at, record in parser.plain(old) if kind == "record"]
    for group in groups:
        for kind, at, head, record in parser.dledger(group / "data"):
            if kind == "entry":
                fields = [head[name] for name in ("magic", "size", "index", "term", "pos")]
                found.append((at, parser.ENTRY.pack(*fields, 0, 0, 0, head["length"]) + record["raw"]))
    return found


def check_held(found, root, plan):
    assert found.values == values_of(root)
    assert found.documents == documents_of(root)
    assert found.offsets == plan.offsets
    queues = {(topic, queue): n for topic, some in found.table.items() for queue, n in some.items()}
    assert queues == plan.queues
    assert found.store_ms == plan.store_ms
    assert found.descriptor.state == READY
    assert found.descriptor.regions == plan.regions


QUICK = {"plain-clean", "upgraded-killed", ("import.committed", 5)}  # the others take a minute together


def drawn(cases):
    """The cases of a test, of which only some are for each run."""
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if case in QUICK else pytest.mark.long)
        for case in cases
    ]


@pytest.mark.parametrize("name", drawn(BROKERS))
def test_archives_of_brokers(tmp_path, name):
    """Every record and entry at its place, documents byte for byte, queues and offsets; what was told adds up."""

    async def story():
        root = unpack(name, tmp_path)
        timer = root / "timerwheel"
        with timer.open("wb") as file:
            file.truncate(3_000_000)
            file.seek(1_500_000)
            file.write(b"slot")
        async with cluster(tmp_path / "cluster") as world:
            logs, told = await world.logs(), []
            plan, descriptor = await imported(logs, root, told=lambda *each: told.append(each))
            found = await held(await world.logs())
            check_held(found, root, plan)
            assert found.descriptor == descriptor
            assert abs(descriptor.imported.at - (await logs.bk.store.records.clock())) < 600_000
            assert told == sorted(told)
            assert told[-1] == (plan.value_bytes, plan.value_bytes)
            info = await logs.info(NAME)
            assert (info.settings["use"], info.settings["publish"], info.settings["needs_snapshot"]) == (
                USE,
                False,
                True,
            )
            for at, value in found.values[:: max(1, len(found.values) // 7)]:
                place = await logs.find(NAME, at + len(value) // 2)
                assert place.position == at
            again = await imported(logs, root)
            assert again == (plan, descriptor)
            assert await unnamed(logs) == (set(), [])

    run(story)


@pytest.mark.parametrize(
    ("point", "nth"), drawn((point, n) for point, most in POINTS.items() for n in sorted({1, most}))
)
def test_an_import_that_is_killed_goes_on(tmp_path, point, nth):
    """The same command again: as in one go, with no ledger that nothing names."""

    async def story(number):
        root = unpack("upgraded-killed", tmp_path)
        async with cluster(tmp_path / f"cluster{number}") as world:
            doomed = Doomed(point, nth)
            doomed.logs = logs = await world.logs(doomed.reached)
            killed = story_of(imported(logs, root, reached=doomed.reached))
            killed.addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            second, steps = await world.logs(), []
            plan, _descriptor = await imported(second, root, reached=steps.append)
            check_held(await held(second), root, plan)
            assert await unnamed(second) == (set(), [])
            if point == "import.committed":
                assert steps.count("import.part") == len(plan.files) - nth

    for number in range(ROUNDS):
        run(partial(story, number))


class Slow(Tree):
    """Once it `waits`, files are read when `goes_on` is set."""

    waits = False

    def __init__(self):
        super().__init__()
        self.goes_on = threading.Event()

    def read(self, path, at, count):
        if self.waits:
            assert self.goes_on.wait(60)
        return super().read(path, at, count)


def test_the_newest_run_wins(tmp_path):
    """A former one is fenced at its next file, and the store has each value once."""

    async def story():
        root = unpack("plain-clean", tmp_path)
        async with cluster(tmp_path / "cluster") as world:
            first, second, tree, begun = await world.logs(), await world.logs(), Slow(), Deferred()

            def reached(point):
                if point == "import.committed" and not begun.called:
                    tree.waits = True
                    begun.callback(None)

            former = story_of(imported(first, root, tree=tree, reached=reached))
            await begun
            plan, _descriptor = await imported(second, root)
            tree.goes_on.set()
            await failing(former, LogFenced)
            check_held(await held(second), root, plan)
            assert await unnamed(second) == (set(), [])

    run(story)


def test_a_former_run_that_goes_on_behind_the_newest_one(tmp_path):
    """What consumers have told the store since then stays."""

    async def story():
        root, consumed = unpack("plain-clean", tmp_path), Consumed("again", "T", 1)
        async with cluster(tmp_path / "cluster") as world:
            first, second, begun, goes_on = await world.logs(), await world.logs(), Deferred(), Deferred()
            own = first.own

            async def late(*names, **options):
                begun.callback(None)
                await goes_on
                return await own(*names, **options)

            first.own = late
            former = story_of(imported(first, root))
            await begun
            plan, descriptor = await imported(second, root)
            owner = await second.own(f"{NAME}.progress", use=USE)
            await owner.append(LONG.pack(77), key=offset_key(consumed))
            await owner.close()
            goes_on.callback(None)
            assert await former == (plan, descriptor)
            assert (await held(second)).offsets == {**plan.offsets, consumed: 77}

    run(story)


def test_another_source_is_refused(tmp_path):
    """While an import is begun, and once it is ready; the store goes on with its own."""

    async def story():
        root, other = tmp_path / "a", tmp_path / "b"
        plain(root, range(60))
        plain(other, range(61))
        async with cluster(tmp_path / "cluster") as world:
            doomed = Doomed("import.committed", 1)
            doomed.logs = logs = await world.logs()
            story_of(imported(logs, root, reached=doomed.reached)).addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            logs = await world.logs()
            error = await failing(story_of(imported(logs, other)), ImportRefused)
            assert (error.why, error.file) == ("SourceChanged", str(other))
            assert f"quire messages delete {NAME}" in str(error)
            await imported(logs, root)
            assert (await failing(story_of(imported(logs, other)), ImportRefused)).why == "StoreExists"
            await logs.create("plain")
            await logs.create("c.progress")
            for name in ("plain", "c"):
                error = await failing(story_of(imported(logs, other, name=name)), ImportRefused)
                assert error.why == "StoreExists"
                assert "--into" in str(error)

    run(story)


def test_the_log_of_progress_is_on_as_many_bookies(tmp_path):
    """It has the quorums that were asked for, and takes no published ledgers, either."""

    async def story():
        root = tmp_path / "a"
        plain(root, range(3))
        async with cluster(tmp_path / "cluster") as world:
            logs = await world.logs()
            await imported(logs, root, settings={"ensemble": 2, "write": 2, "ack": 1})
            for name in (NAME, f"{NAME}.progress"):
                found = (await logs.info(name)).settings
                assert [found[key] for key in ("ensemble", "write", "ack", "publish")] == [2, 2, 1, False]

    run(story)


def test_a_source_that_changes_behind_its_plan(tmp_path):
    """Nothing of the file comes into the log."""

    async def story():
        root = tmp_path / "a"
        builder = plain(root, range(60))
        place = builder.records[40][0]
        async with cluster(tmp_path / "cluster") as world:
            logs = await world.logs()

            def reached(point):
                if point == "import.created":
                    overwrite(root, place + 95, b"?")

            error = await failing(story_of(imported(logs, root, reached=reached)), ImportRefused)
            assert error.why == "SourceChanged"
            assert error.offset == place - place % FILE_BYTES
            values = [value async for batch in (await logs.read(NAME)).batches() for value in batch.values]
            assert len(values) == sum(at < error.offset for at, _record in builder.records)
            overwrite(root, place + 95, b"x")
            plan, _descriptor = await imported(logs, root)
            check_held(await held(logs), root, plan)
            assert await unnamed(logs) == (set(), [])

    run(story)


@pytest.mark.parametrize("left", [0, 5, 1000])
def test_a_source_that_becomes_shorter_behind_its_plan(tmp_path, left):
    """The import is refused by name, wherever the file ends now."""

    async def story():
        root = tmp_path / "a"
        plain(root, range(60))
        file = root / "commitlog" / f"{FILE_BYTES:020d}"

        def reached(point):
            if point == "import.created":
                os.truncate(file, left)

        async with cluster(tmp_path / "cluster") as world:
            logs = await world.logs()
            error = await failing(story_of(imported(logs, root, reached=reached)), ImportRefused)
            assert (error.why, error.file) == ("SourceChanged", str(file))
            assert await unnamed(logs) == (set(), [])

    run(story)


@pytest.mark.long
def test_odd_stores(tmp_path):
    """Nothing but zeros; a first file far up; expired queues; gaps and doubles; a value above a window."""

    async def story():
        async with cluster(tmp_path / "cluster") as world:
            logs = await world.logs()
            empty = tmp_path / "empty"
            (empty / "commitlog").mkdir(parents=True)
            (empty / "commitlog" / ("0" * 20)).write_bytes(bytes(FILE_BYTES))
            with pytest.raises(ValueError, match="--address"):
                await imported(logs, empty, name="empty")
            plan, descriptor = await imported(logs, empty, name="empty", address="10.0.0.5:10911")
            check_held(await held(logs, "empty"), empty, plan)
            assert descriptor.store_settings.address == "10.0.0.5:10911"
            far = tmp_path / "far"
            first = 5_000_000_000_000 - 5_000_000_000_000 % FILE_BYTES
            builder = plain(far, [(1 << 40) + n for n in (0, 1, 4, 1, 5)], first=first)
            written_queue(far, [(first - 100, 90)], name="consumequeue/gone/3", first=342)
            plan, descriptor = await imported(logs, far, name="far")
            found = await held(logs, "far")
            check_held(found, far, plan)
            assert found.table == {"T": {0: (1 << 40) + 4}, "gone": {3: 343}}
            assert descriptor.doubles == (builder.records[3][0],)
            assert found.values[0][0] == first
            large = tmp_path / "large"
            builder = plain(large, [], size=64 << 20)
            builder.put("T", b"y" * (9 << 20), queue_offset=0)
            builder.put("T", b"z", queue_offset=1)
            builder.close()
            plan, _descriptor = await imported(logs, large, name="large")
            check_held(await held(logs, "large"), large, plan)

    run(story)


@pytest.mark.long
def test_a_trim_behind_an_import(tmp_path):
    """Any prefix goes: below it the log is trimmed, above it every record is there."""

    async def story():
        root = unpack("upgraded-clean", tmp_path)
        async with cluster(tmp_path / "cluster") as world:
            logs = await world.logs()
            await imported(logs, root)
            values = values_of(root)
            for index in (1, 30, 63, 64, 100):
                begin = await logs.trim(NAME, index)
                assert begin <= index
                if begin:
                    await failing(story_of(logs.find(NAME, values[0][0])), LogTrimmed)
                left = []
                async for batch in (await logs.read(NAME)).batches():
                    left += zip(batch.positions, batch.values, strict=True)
                assert left == values[begin:]

    run(story)


@pytest.mark.long
def test_replicas_of_a_group(tmp_path):
    """The store has what the chosen one has."""

    async def story():
        entries(tmp_path / "a", [1] * 10)
        entries(tmp_path / "b", [1] * 12, name="dledger-n1")
        async with cluster(tmp_path / "cluster") as world:
            logs = await world.logs()
            plan, descriptor = await imported(logs, tmp_path / "a", tmp_path / "b", group_size=3)
            check_held(await held(logs), tmp_path / "b", plan)
            assert descriptor.regions[0].group == "dledger-n1"

    run(story)


OPENS = ("open", "openat", "openat2", "creat")
ASKED = ("F_GETLK", "F_GETFD", "F_GETFL", "F_DUPFD_CLOEXEC")


def sums(root):
    """Bytes, size and times of everything below a directory."""
    found = {}
    for path in sorted(root.rglob("*")):
        state = path.stat()
        content = hashlib.sha1(path.read_bytes()).hexdigest() if path.is_file() else sorted(os.listdir(path))
        found[str(path)] = (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_mode, content)
    return found


@pytest.mark.long
def test_the_source_is_only_read(tmp_path):
    """By its system calls: no open for writing, no create, rename or lock; sums and times are as before."""
    need("strace")
    root, trace = unpack("upgraded-killed", tmp_path), tmp_path / "trace"
    (root / "lock").write_bytes(b"lock")
    before = sums(root)
    command = ["strace", "-ff", "-y", "-qq", "-o", str(trace), "-e", "trace=%file,fcntl,flock,ftruncate,fchmod,fchown"]
    program = [sys.executable, "-m", "tests.messages.rocketmq.import_alone", str(root), str(tmp_path / "cluster")]
    done = subprocess.run([*command, *program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["108", READY]
    assert sums(root) == before
    told = [line for each in tmp_path.glob("trace.*") for line in each.read_text().splitlines()]
    lines = [line for line in told if str(root) in line]
    assert any(line.startswith("openat") and "commitlog" in line for line in lines)
    for line in lines:
        call = line.partition("(")[0]
        if call in OPENS:
            assert "O_RDONLY" in line, line
            assert not any(flag in line for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC")), line
        elif call == "fcntl":
            assert any(asked in line for asked in ASKED), line
        else:
            assert call in ("execve", "stat", "lstat", "newfstatat", "statx", "readlink", "access", "getcwd"), line


def test_a_plan_that_is_cancelled(tmp_path):
    """It is over when its thread has ended, which is soon; the source is closed then."""
    root = unpack("plain-clean", tmp_path)

    class Slow(Tree):
        reads = 0

        def read(self, path, at, count):
            Slow.reads += 1
            if Slow.reads == 2:
                reactor.callFromThread(begun.callback, None)
                assert go_on.wait(60)
            return super().read(path, at, count)

    go_on, begun = threading.Event(), Deferred()

    async def story():
        async with cluster(tmp_path / "c", bookies=0) as world:
            logs = await world.logs()
            with Slow() as tree:
                plan = Deferred.fromCoroutine(planned(logs, tree, Wanted((str(root),)), lambda *_each: None))
                await begun
                over = []
                plan.addErrback(over.append)
                plan.cancel()
                assert not over
                go_on.set()
                await plan
                assert over[0].check(CancelledError)
            assert Slow.reads == 2

    run(story)


def test_a_directory_with_other_queues(tmp_path):
    """An import goes on only with the plan that its descriptor has."""
    root = unpack("plain-clean", tmp_path)

    async def story():
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            with Tree() as tree:
                plan = make_plan(tree, Wanted((str(root),)))

                def killed(point):
                    if point == "import.created":
                        raise InterruptedError

                await failing(Deferred.fromCoroutine(Importing(logs, tree, NAME, plan, reached=killed).run()), OSError)
                other = replace(plan, next=(Next("T", 9, 5),))
                error = await failing(Deferred.fromCoroutine(Importing(logs, tree, NAME, other).run()), ImportRefused)
                assert (error.why, "other consume queues" in str(error)) == ("SourceChanged", True)
                await Importing(logs, tree, NAME, plan).run()

    run(story)
