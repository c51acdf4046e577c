"""The commands on a stopped bookie's directories: inspect, check, rebuild-index, export-check, export."""

import json
import shutil
from pathlib import Path

from tests.tools.command import ok, quire


def test_export_and_its_check(conf: Path) -> None:
    """No, with the command to run; yes after it; in both forms."""
    before = quire("bookie", "export-check", "--conf", conf)
    assert (before.code, "quire bookie export --conf" in before.out) == (1, True)
    done = json.loads(ok("bookie", "export", "--conf", conf, "--json").out)
    assert done == {"storage": "DbLedgerStorage", "ledgers": 6, "entries": 234}
    assert "can take these directories (DbLedgerStorage)" in ok("bookie", "export-check", "--conf", conf).out
    assert json.loads(ok("bookie", "export-check", "--conf", conf, "--json").out)["reasons"] == []


def test_check_and_rebuild(conf: Path) -> None:
    """A lost index is found by the check, mended by the rebuild, and then the check is content."""
    report = json.loads(ok("bookie", "check", "--conf", conf, "--offline", "--json").out)
    assert (report["problems"], report["entries"]) == ([], 234 * 5 + 200)
    shutil.rmtree(conf.parent / "index/current/runs")
    lost = quire("bookie", "check", "--conf", conf, "--offline")
    assert (lost.code, "rebuild-index" in lost.out) == (1, True)
    assert "1370 entries of 6 ledgers from 2 logs" in ok("bookie", "rebuild-index", "--conf", conf).out
    assert "problems: 0" in ok("bookie", "check", "--conf", conf, "--offline").out
