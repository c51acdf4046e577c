"""`quire conf`: `check` has a row for each key of a file, and the exit status of one that would stop a start."""

import os
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.tools.command import ok, quire, refused

# SPDX-License-Identifier: Apache-2.0

SHIPPED = Path(__file__).parents[2] / "conf" / "shipped"


def test_a_row_for_each_key() -> None:
    """In the order of the file, with its line; the counts follow on standard error."""
    done = ok("conf", "check", SHIPPED / "bk_server.conf")
    lines = done.out.splitlines()
    assert lines[0].split() == ["KEY", "VALUE", "TREATMENT", "LINE", "WHY"]
    assert lines[1].split() == ["bookiePort", "3181", "honoured", "2"]
    assert lines[6].split(maxsplit=4)[2:] == ["ignored", "7", "there is one HTTP server"]
    assert len(lines) == 29
    assert done.err.strip() == "18 honoured, 2 differs, 8 ignored, 0 refused"


def test_one_document_a_line() -> None:
    """With --json, and nothing else."""
    done = ok("conf", "check", SHIPPED / "bookkeeper.conf", "--json")
    assert done.err == ""
    assert Counter(row["treatment"] for row in done.rows) == {"honoured": 52, "differs": 3, "ignored": 32}
    (threads,) = (row for row in done.rows if row["key"] == "numReadWorkerThreads")
    assert threads == {
        "key": "numReadWorkerThreads",
        "value": "8",
        "treatment": "ignored",
        "line": 13,
        "why": "one thread serves connections, few others the disks: there are no pools to size",
    }


def test_what_would_stop_a_start(tmp_path: Path) -> None:
    """An unknown key, a bad value, one that is missing; the status is 1, and a password is not shown."""
    conf = tmp_path / "b.conf"
    conf.write_text("bookiePrt=1\nzkTimeout=soon\nledgerDirectories=/l\npasswd=planted\nreadOnlyModeEnabled=false\n")
    done = quire("conf", "check", conf, "--json")
    assert done.code == 1
    assert done.err.strip() == f"quire: {conf} would stop a start: 4 refused"
    assert "planted" not in done.out
    treatments = {row["key"]: (row["treatment"], row["line"], row["why"]) for row in done.rows if row["key"] != "-"}
    assert treatments["bookiePrt"] == ("refused", 1, "unknown key 'bookiePrt'; the nearest one is bookiePort")
    assert treatments["zkTimeout"] == ("refused", 2, "zkTimeout=soon is not allowed: at least 1000 ms")
    assert treatments["ledgerDirectories"] == ("honoured", 3, "")
    assert treatments["readOnlyModeEnabled"][:2] == ("differs", 5)
    missing = [row["why"] for row in done.rows if row["key"] == "-"]
    assert [text.partition(" ")[0] for text in missing] == ["metadataServiceUri", "journalDirectories"]


def test_a_key_with_two_values(tmp_path: Path) -> None:
    """No row could say which of them counts."""
    conf = tmp_path / "b.conf"
    conf.write_text("zkTimeout=5000\nzkTimeout=6000\n")
    assert "zkTimeout is set again, to '6000'" in refused(2, "conf", "check", conf)


def test_files_of_a_client_and_of_a_host(tmp_path: Path) -> None:
    """A client's needs no directories; a host's has keys of one bookie alone."""
    conf = tmp_path / "b.conf"
    conf.write_text("metadataServiceUri=zk://a/ledgers\nstickyReadSEnabled=false\n")
    assert {row["treatment"] for row in ok("conf", "check", conf, "--json").rows} == {"honoured"}
    conf.write_text(
        "hostBookies=2\nmetadataServiceUri=zk://a/ledgers\njournalDirectories=/j\nledgerDirectories=/l\n"
        "bookie.1.ledgerDirectories=/m\nbookie.1.pageSize=1\n"
    )
    rows = ok("conf", "check", conf, "--json").rows
    assert [(row["key"], row["treatment"]) for row in rows if "ookie" in row["key"]] == [
        ("hostBookies", "honoured"),
        ("bookie.1.ledgerDirectories", "honoured"),
        ("bookie.1.pageSize", "ignored"),
    ]


@pytest.mark.parametrize("of", ["bookie", "host", "autorecovery", "client"])
def test_a_file_to_begin_with(of: str, tmp_path: Path) -> None:
    """It has no key that is not honoured."""
    conf = tmp_path / f"{of}.conf"
    conf.write_text(ok("conf", "sample", of).out)
    assert len(conf.read_text().splitlines()) > 20
    assert {row["treatment"] for row in ok("conf", "check", conf, "--json").rows} <= {"honoured"}


@pytest.mark.parametrize("of", ["bookie", "host", "autorecovery", "console"])
def test_a_unit_starts_the_command_that_printed_it(of: str) -> None:
    """By its path."""
    unit = ok("conf", "unit", of).out
    (path,) = re.findall(r"(?m)^ExecStart=(\S+) ", unit)
    assert path == str(Path(sys.prefix, "bin", "quire"))
    assert os.access(path, os.X_OK)
