"""Directories that were imported into a log come out of it as they went in."""

import os

import pytest

from quire.messages.descriptor import USE
from quire.messages.rocketmq.exported import exported
from quire.messages.rocketmq.exporting import COMPLETE, MARKER
from quire.protocol.errors import LedgerError
from quire.protocol.message_errors import ExportRefused, NoSuchStore, StoreImporting
from tests.log.fakes.cluster import cluster
from tests.messages.archives import BROKERS, unpack
from tests.messages.exported import SIZES, blanked, tree
from tests.messages.rocketmq.imports import NAME, imported
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

ROUNDS = int(os.environ.get("ROUNDS", "1"))
F = 65_536


def of_store(files):
    """The files of the log and the documents; those of the log with zeros in fillers, and without empty ones."""
    log = {name: data for name, data in files.items() if "/data/" in name or name.startswith("commitlog/")}
    return dict(blanked({name: data for name, data in log.items() if any(data)})) | {
        name: data for name, data in files.items() if name.startswith("config/")
    }


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in BROKERS[:3:2] else pytest.mark.long) for n in BROKERS]
)
def test_archives_in_and_out(name, tmp_path):
    """Byte for byte up to the end, outside the bodies of fillers; documents equal; as by the reference's values."""
    root = unpack(name, tmp_path)

    async def story():
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            await imported(logs, root)
            told = []
            report = await exported(
                logs, NAME, str(tmp_path / "out"), sizes=SIZES, told=lambda *each: told.append(each)
            )
            assert told[-1] == (report.end - report.begin,) * 2
            again = await exported(logs, NAME, str(tmp_path / "out"), sizes=SIZES)
            assert (again.files, again.settings) == (0, report.settings)
            return report

    report = run(story)
    assert of_store(tree(tmp_path / "out")) == of_store(tree(root))
    assert report.files == sum(any(data) for n, data in tree(root).items() if "/data/" in n or n.startswith("commitl"))
    if "upgraded" not in name:
        assert not report.unkept


def test_progress_that_was_compacted(tmp_path):
    """Offsets and documents that only the compacted log of progress has come out, too."""
    root = unpack("plain-clean", tmp_path)

    async def story():
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            await imported(logs, root)
            name = f"{NAME}.progress"
            owner = await logs.own(name, use=USE)
            owner.roll()
            await owner.append(b"\0" * 8, key=b"o\x01late\x01T\x010")
            await owner.close()
            assert await logs.compact(name) is not None
            await logs.tidy(name)
            await exported(logs, NAME, str(tmp_path / "out"), sizes=SIZES)

    run(story)
    files = tree(tmp_path / "out")
    assert b"again" in files["config/consumerOffset.json"]
    assert b"late" in files["config/consumerOffset.json"]
    before = tree(root)
    assert files["config/subscriptionGroup.json"] == before["config/subscriptionGroup.json"]


class Ended(LedgerError):
    """The run ended here."""


def test_a_trimmed_log_and_killed_runs(tmp_path):
    """It begins with the file that is left; each run that ended early is gone on with, while the log is as it was."""
    root = unpack("plain-killed", tmp_path)

    async def story():
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            await imported(logs, root)
            index = (await logs.find(NAME, F)).index
            await logs.trim(NAME, index)
            await exported(logs, NAME, str(tmp_path / "whole"), sizes=SIZES)
            kills = 0
            while True:
                left = [kills % 3]

                def reached(point, left=left):
                    left[0] -= 1
                    if left[0] < 0:
                        raise Ended(point)

                try:
                    await exported(logs, NAME, str(tmp_path / "out"), sizes=SIZES, reached=reached)
                    break
                except Ended:
                    kills += 1
            assert kills > 3
            text = str(await failing(exported(logs, NAME, str(tmp_path / "no"), 0), ExportRefused))
            assert f"multiple of {F} from {F} on" in text

    run(story)
    assert tree(tmp_path / "whole") == tree(tmp_path / "out")
    assert COMPLETE in (tmp_path / "out" / MARKER).read_text()
    assert min(name for name in tree(tmp_path / "out") if name.startswith("commitlog")) == f"commitlog/{F:020d}"


def test_what_is_no_store(tmp_path):
    """A plain log, and an import that has not ended, are named with the next step."""

    async def story():
        async with cluster(tmp_path / "c") as world:
            logs = await world.logs()
            await logs.create("plain")
            assert "quire messages list" in str(
                await failing(exported(logs, "plain", str(tmp_path / "o")), NoSuchStore)
            )

            def reached(point):
                raise Ended(point)

            await failing(imported(logs, unpack("plain-clean", tmp_path), reached=reached), Ended)
            text = str(await failing(exported(logs, NAME, str(tmp_path / "o")), StoreImporting))
            assert "quire messages import" in text
            assert (await logs.info(NAME)).settings["use"] == USE

    run(story)
    assert not (tmp_path / "o").exists()
