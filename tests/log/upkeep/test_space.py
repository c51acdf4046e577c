"""What logs no longer need leaves the disks of bookies: after a round of upkeep and two of garbage collection."""

import json
from random import Random

import pytest

from quire.log.blocking import connect
from tests.tools.bookie_process import Cluster

# SPDX-License-Identifier: Apache-2.0

BOOKIES = ("one", "two", "three")
LOGS = "abcdef"
DELETED = "be"
TRIMMED = {"c": 0.3, "d": 0.55, "f": 0.9}
RECORDS, SIZE, SEGMENT = 4000, 1000, 200
OPTIONS = "allowLoopback=true\nlogSizeLimit=1000000\nisForceGCAllowWhenNoSpace=true\n"
COPIES = 3
OVERHEAD = 1.3  # most bytes of entry logs and indexes for each that a log has
JOURNAL_BYTES = 8 << 20  # of each bookie: a few segments of 1 MiB, and as many spares, however much was written


@pytest.fixture
def cluster(tmp_path):
    """Three bookies in processes of their own, and SQLite."""
    made = Cluster(tmp_path)
    made.write_conf(OPTIONS)
    one = made.conf.read_text()
    for name in BOOKIES:
        made.conf = tmp_path / f"{name}.conf"
        named = one.replace("bookieId=one", f"bookieId={name}")
        made.conf.write_text(named.replace(f"={tmp_path}/", f"={tmp_path}/{name}/"))
        made.start().ready()
    yield made
    made.end()


def held(path):
    """Bytes of the disk that the files below hold."""
    return sum(each.stat().st_blocks * 512 for each in path.rglob("*") if each.is_file())


def collected(cluster):
    """A round of garbage collection of each bookie, to its end."""
    done = [json.loads(cluster.quire("bookie", "gc", name, "--json")) for name in BOOKIES]
    assert all(each["done"] and not each["problems"] for each in done), done
    return done


def test_disks_hold_what_logs_need(cluster):
    """Logs that were written side by side; some are deleted, others trimmed; the rest is read byte for byte."""
    random = Random(17)
    with connect(cluster.uri) as logs:
        expected = {name: [random.randbytes(SIZE) for _ in range(RECORDS)] for name in LOGS}
        for name in LOGS:
            logs.create(name, ensemble=COPIES, write=COPIES, roll_records=SEGMENT)
        owners = {name: logs.own(name) for name in LOGS}
        for start in range(0, RECORDS, 50):
            for name in LOGS:
                owners[name].append_many(expected[name][start : start + 50])
        for owner in owners.values():
            owner.close()
        written = sum(held(cluster.path / name) for name in BOOKIES)
        for name in DELETED:
            logs.delete(name)
        for name, part in TRIMMED.items():
            assert logs.trim(name, int(part * RECORDS)) == part * RECORDS
        assert not logs.tidy().failed
        done = [collected(cluster) for _ in range(2)]
        assert sum(each["bytes_moved"] for each in done[0]) > 0
        assert [each["bytes_moved"] for each in done[1]] == [0] * len(BOOKIES)
        infos = {name: logs.info(name) for name in LOGS if name not in DELETED}
        live = COPIES * sum(each.bytes for each in infos.values())
        assert live == COPIES * SIZE * (len(infos) * RECORDS - sum(each.begin for each in infos.values()))
        ledgers = sum(held(cluster.path / name / "ledgers") for name in BOOKIES)
        print(f"{ledgers / live:.2f} bytes on the disks for each that logs have; {written} before, {ledgers} after")
        assert live <= ledgers <= OVERHEAD * live
        for name in BOOKIES:
            assert held(cluster.path / name / "journal") <= JOURNAL_BYTES
        for name, info in infos.items():
            with logs.read(name, info.begin) as reader:
                assert [record.value for record in reader] == expected[name][info.begin :]
