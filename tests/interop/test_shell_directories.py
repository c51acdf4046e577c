"""Apache's `bookkeeper shell` and `quire shell` on the directories of an Apache bookie that was stopped."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from quire.tools.local_cluster.cluster import quire as begin
from tests.interop import peer
from tests.interop.ours import Ours
from tests.tools.command import ok

# SPDX-License-Identifier: Apache-2.0

ENTRIES = 20
RW = ("shell", "listbookies", "-rw")


class Stopped(NamedTuple):
    """A bookie that was stopped, its ledger, and where each part of its files is."""

    metadata: str
    conf: Path
    bookie: str
    ledger: int
    journal: str


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stopped]:
    zookeeper = peer.ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        begin(["metadata", "init", "--metadata", zookeeper.uri()])
        folder = tmp_path_factory.mktemp("bookie")
        bookie = peer.JavaBookie(folder, zookeeper.uri())
        try:
            with Ours(zookeeper.uri()) as ours:
                ours.until("the bookie is listed", lambda: bookie.id in ok(*RW, metadata=zookeeper.uri()).out)
                payloads = [b"line %d\n" % number for number in range(ENTRIES)]
                ledger = ours.write(payloads, ensemble_size=1, write_quorum=1, ack_quorum=1)
        finally:
            bookie.stop()
        journals = sorted((folder / "journal" / "current").glob("*.txn"))
        yield Stopped(zookeeper.uri(), bookie.conf, bookie.id, ledger, journals[-1].name)
    finally:
        zookeeper.stop()


# By name and options: the facts that both print.
ROWS = [
    ("listfilesondisc -txn -log", r"/\S+\.(?:txn|log)"),
    ("lastmark", r"LastLogMark : Journal Id - \d+\([0-9a-f]+\.txn\), Pos - \d+"),
    ("ledger -m LEDGER", r"entry \d+\t:\t\(log: \d+, pos: \d+\)"),
    ("readlog 0", r"entryId=(\d+)\b"),
    ("readlog 0 -l LEDGER -e 7 -m", r"line \d+"),
    ("readlogmetadata 0", r"\b(?:totalSize|size)=\d+"),
    ("activeledgers -l 0", r"\b(?:totalSize|usage)=[\d.]+"),
    ("readjournal JOURNAL", r"entryId=(\d+)\b"),
    ("readjournal JOURNAL -m", r"line \d+"),
    ("localconsistencycheck", r"(?i)check passed"),
    ("check-db-ledgers-index -v", r"ledgerId=\d+"),
]


def said(stopped: Stopped, words: str) -> tuple[str, str]:
    """What Apache's shell prints, and ours."""
    given = words.replace("LEDGER", str(stopped.ledger)).replace("JOURNAL", stopped.journal).split()
    theirs = peer.shell(stopped.metadata, *given, conf=stopped.conf)
    return theirs, ok("shell", "-conf", stopped.conf, *given).out


@pytest.mark.parametrize(("words", "facts"), ROWS)
def test_both_shells_say_the_same(stopped: Stopped, words: str, facts: str) -> None:
    """The same facts."""
    theirs, ours = said(stopped, words)
    found = {each.lower() for each in re.findall(facts, ours)}
    assert found, ours
    assert found == {each.lower() for each in re.findall(facts, theirs)}, theirs


def test_the_files(stopped: Stopped) -> None:
    """All of them that hold data, by kind."""
    listed = {Path(line) for line in ok("shell", "-conf", stopped.conf, "listfilesondisc").out.splitlines()}
    folder = stopped.conf.parent
    there = {*(folder / "journal/current").glob("*.txn"), *(folder / "ledgers/current").glob("*.log")}
    assert there
    assert listed >= there | {folder / "index/current/ledgers", folder / "index/current/locations"}


def test_cookies_and_what_refuses(stopped: Stopped) -> None:
    """Both list the cookies of the same directories; a bookie that is down passes no test; one with data is not new."""
    theirs, ours = said(stopped, "updatecookie -list")
    places = {str(stopped.conf.parent / each) for each in ("journal", "ledgers", "index")}
    assert places <= set(re.findall(r"place=(\S+)", ours))
    assert places <= {path.removesuffix("/current/VERSION") for path in re.findall(r"file=([^}\s]+)", theirs)}
    for words in ("bookiesanity", "initbookie"):
        with pytest.raises(RuntimeError):
            peer.shell(stopped.metadata, words, conf=stopped.conf)
        with pytest.raises(AssertionError, match="ended with 1"):
            ok("shell", "-conf", stopped.conf, words)


def test_an_index_that_ours_rebuilds_is_apaches_to_read(stopped: Stopped) -> None:
    """After both have rebuilt, what each of them says of the ledger is what it said before."""
    before = said(stopped, "ledger LEDGER")
    for words in ("rebuild-db-ledger-locations-index", "rebuild-db-ledgers-index"):
        said(stopped, words)
    after = said(stopped, "ledger LEDGER")
    facts = r"entry \d+\t:\t\(log: \d+, pos: \d+\)"
    assert len(re.findall(facts, before[0])) == ENTRIES
    assert [sorted(re.findall(facts, each)) for each in before] == [sorted(re.findall(facts, each)) for each in after]


def test_a_bookie_that_is_formatted_has_nothing(stopped: Stopped) -> None:
    """Apache's shell takes its directories for those of a new bookie, which it refused above."""
    ok("shell", "-conf", stopped.conf, "bookieformat", "-nonInteractive", "-force")
    assert not list(stopped.conf.parent.glob("*/current/*.log"))
    peer.shell(stopped.metadata, "initbookie", conf=stopped.conf)
    with pytest.raises(RuntimeError):
        peer.shell(stopped.metadata, "cookie_get", stopped.bookie)
