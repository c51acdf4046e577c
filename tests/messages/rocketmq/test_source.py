"""Store directories: their kinds, what is refused for names and sizes, who has one in use."""

import fcntl
import os
import subprocess
import sys

import pytest

from quire.messages.rocketmq.source import Tree, open_source, queue_files
from quire.protocol.message_errors import ImportRefused
from tests.messages.archives import BROKERS, DLEDGER, FILE_BYTES, PLAIN, unpack
from tests.messages.rocketmq.made import plan_of

# SPDX-License-Identifier: Apache-2.0

HOLDER = (
    "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(1, flush=True); input()"
)


def made(root, *names, size=FILE_BYTES):
    """Files below a directory, all of one size."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(size)
    return root


def refused(root, why, text="", **options):
    with pytest.raises(ImportRefused, match=why) as failure:
        open_source(Tree(), str(root), **options)
    assert failure.value.why == why
    assert text in str(failure.value)
    return failure.value


@pytest.mark.parametrize("name", BROKERS)
def test_directories_of_brokers(tmp_path, name):
    """Kind, clean or killed, files in order, documents; what a broker derives is no document."""
    source = open_source(Tree(), str(unpack(name, tmp_path)))
    assert source.kind == ("plain" if name in PLAIN else "dledger" if name in DLEDGER else "upgraded")
    assert source.is_clean is ("killed" not in name)
    assert [file.begin for file in source.files] == list(range(0, FILE_BYTES * len(source.files), FILE_BYTES))
    assert source.divided == (None if name in PLAIN else 0 if name in DLEDGER else 196608)
    assert source.committed == {"dledger-killed-leader": 52, "dledger-new-leader": 112}.get(name, source.committed)
    names = {each.name for each in source.documents}
    assert {"config/topics.json", "config/consumerOffset.json", "config/timercheck"} <= names
    assert all(each.startswith("config/") for each in names)
    assert source.holder is None


def test_documents_are_configuration_and_timer_files(tmp_path):
    """Backups are none."""
    made(tmp_path, "commitlog/" + "0" * 20)
    made(tmp_path, "config/topics.json", "config/topics.json.bak", "timerwheel", "timerlog/" + "0" * 20, size=3)
    made(tmp_path, "checkpoint", "index/20260101", size=3)
    source = open_source(Tree(), str(tmp_path))
    assert [(each.name, each.size) for each in source.documents] == [
        ("config/topics.json", 3),
        ("timerlog/" + "0" * 20, 3),
        ("timerwheel", 3),
    ]


def test_what_is_no_store(tmp_path):
    """Nothing there, no log, two groups, RocksDB: each says what to do."""
    refused(tmp_path / "absent", "SourceUnknown", "no such directory")
    made(tmp_path / "a", "config/topics.json")
    assert refused(tmp_path / "a", "SourceUnknown", "storePathRootDir").file == str(tmp_path / "a")
    made(tmp_path / "b", "dledger-n0/data/" + "0" * 20, "dledger-n1/data/" + "0" * 20)
    refused(tmp_path / "b", "SourceUnknown", "dledger-n0, dledger-n1")
    for number, path in enumerate(("consumequeue", "config/topics")):
        root = made(tmp_path / f"rocks{number}", "commitlog/" + "0" * 20, f"{path}/CURRENT")
        assert refused(root, "SourceUnknown", "RocksDB").file == f"{root}/{path}"


def test_files_that_are_missing_or_have_another_size_or_name(tmp_path):
    """Each names the file and the offset; a last file may be empty."""
    root = made(tmp_path / "hole", f"commitlog/{0:020d}", f"commitlog/{2 * FILE_BYTES:020d}")
    failure = refused(root, "FileMissing", f"between {FILE_BYTES} and {2 * FILE_BYTES}")
    assert (failure.file, failure.offset) == (f"{root}/commitlog/{2 * FILE_BYTES:020d}", FILE_BYTES)
    root = made(tmp_path / "size", f"commitlog/{0:020d}")
    made(root, f"commitlog/{FILE_BYTES:020d}", size=4096)
    failure = refused(root, "FileSize", f"it has 4096 bytes where the first file has {FILE_BYTES}")
    assert (failure.file, failure.offset) == (f"{root}/commitlog/{FILE_BYTES:020d}", FILE_BYTES)
    made(root, f"commitlog/{FILE_BYTES:020d}", size=0)
    assert open_source(Tree(), str(root)).files[1].size == 0
    made(root, f"commitlog/{0:020d}", size=0)
    refused(root, "FileSize")
    for name in ("0001", f"{FILE_BYTES + 1:020d}", "0" * 19 + "a"):
        root = made(tmp_path / name, f"commitlog/{0:020d}", f"commitlog/{name}")
        assert refused(root, "FileName").file == f"{root}/commitlog/{name}"


def test_a_log_in_several_directories(tmp_path):
    """Files of all count, and one that is there twice is refused."""
    root = made(tmp_path, f"commitlog/{0:020d}", f"other/{FILE_BYTES:020d}", f"twice/{0:020d}")
    found = open_source(Tree(), str(root), [f"{root}/other"])
    assert [file.begin for file in found.files] == [0, FILE_BYTES]
    refused(root, "FileName", commit_logs=[f"{root}/other", f"{root}/twice"])


def test_a_directory_in_use_names_the_process(tmp_path):
    """By the lock that its broker holds, which is only looked at."""
    made(tmp_path, f"commitlog/{0:020d}")
    lock = tmp_path / "lock"
    lock.write_bytes(b"lock")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline()
        source = open_source(Tree(), str(tmp_path))
        assert source.holder == process.pid
        with pytest.raises(ImportRefused, match=f"{tmp_path}/lock: it is locked by process {process.pid}: stop"):
            source.check_unused()
        with pytest.raises(ImportRefused, match="SourceInUse"):
            plan_of(tmp_path)
        (told,) = plan_of(tmp_path, in_use=True).reports
        assert told.startswith(f"{tmp_path} is locked by process {process.pid}: it may change")
        process.communicate(b"\n")
    assert open_source(Tree(), str(tmp_path)).holder is None
    assert plan_of(tmp_path, in_use=True).reports == ()
    with lock.open("r+") as file:  # no lock of ours is left on it
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_files_of_queues(tmp_path):
    """By topic and number, of both kinds; what has other names is passed over."""
    root = unpack("plain-clean", tmp_path)
    made(root, "consumequeue/T/note", "consumequeue/T/x/" + "0" * 20, "consumequeue/stray")
    found = {(each.topic, each.queue, each.is_batch): each for each in queue_files(Tree(), str(root))}
    assert ("I", 0, True) in found
    assert {key for key in found if key[0] == "T"} == {("T", 0, False), ("T", 1, False)}
    assert all(size == 2000 for each in found.values() if not each.is_batch for _path, _at, size in each.files)


def test_few_descriptors_stay_open(tmp_path):
    """However many files are read, and none behind `close`."""
    made(tmp_path, *map(str, range(40)), size=10)
    tree, before = Tree(), len(os.listdir("/proc/self/fd"))
    for _round in range(2):
        for number in range(40):
            assert tree.read(str(tmp_path / str(number)), 4, 100) == bytes(6)
    assert len(os.listdir("/proc/self/fd")) <= before + 16
    tree.close()
    assert len(os.listdir("/proc/self/fd")) == before
