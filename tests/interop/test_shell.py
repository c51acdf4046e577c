"""Apache's `bookkeeper shell` and `quire shell` on the same cluster: what scripts look for is the same in both."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tools.local_cluster.cluster import quire
from tests.interop import peer
from tests.interop.ours import Bookies
from tests.tools.command import ok

# SPDX-License-Identifier: Apache-2.0

ADDRESS = r"BookieID:\S+, IP:\S+, Port:\d+"
WHOSE = r"BookieID:[^,]+|(?i:ledgerid)(?:: |=)\d+|\d+=\[[^\]]*\]"  # of bookies no addresses: they are down
ROWS = [
    ("whatisinstanceid", r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("autorecovery", r"(?i)\b(?:enabled|disabled)\b"),
    ("queryautorecoverystatus", r"(?i)no ledger is being recovered"),
    ("lostbookierecoverydelay -get", r"\b30\b"),
    ("listbookies -rw", ADDRESS),
    ("listbookies -a", ADDRESS),
    ("bookieinfo", ADDRESS),
    ("endpointinfo -b BOOKIE", r"bookie-rpc|httpserver|quire\.incarnation"),
    ("cookie_get BOOKIE", r'(?m)^\w+: ".*"$'),
    ("listledgers", r"(?i)ledgerid(?:: |=)(\d+)"),
    ("listledgers -m", r"(?:state|length|lastEntryId|ensembleSize|writeQuorumSize|ackQuorumSize)=\w+"),
    ("ledgermetadata -l LEDGER", r"(?:formatVersion|digestType)=\w+|\d+=\[[^\]]*\]"),
    ("readledger -l LEDGER -fe 1 -le 2", r"(?i)entryid(?:: |=)(\d+)"),
    ("readledger -l LEDGER -fe 1 -le 2 -m", r"\b(?:one|two|three|four)\b"),
    ("listledgers -bookieid BOOKIE", r"(?i)ledgerid(?:: |=)(\d+)"),
    ("listunderreplicated", r"(?i)count\D+(\d+)"),
    ("recover BOOKIE -q -f", r"127\.0\.0\.1:\d+"),
    ("help readlog", r"-(?:l|e|sp|ep|m)\b"),
]


class Shared:
    """A cluster of two bookies of ours, and a ledger of four entries."""

    def __init__(self, metadata: str, bookies: Bookies) -> None:
        self.metadata, self.bookie = metadata, bookies.ids[0]
        quorums = ("--ensemble", 2, "--write", 2, "--ack", 2)
        written = ok("ledger", "write", "--lines", *quorums, metadata=metadata, stdin=b"one\ntwo\nthree\nfour\n")
        self.ledger = written.out.strip()
        ok("shell", "lostbookierecoverydelay", "-set", 30, metadata=metadata)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    zookeeper = peer.ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        quire(["metadata", "init", "--metadata", zookeeper.uri()])
        with Bookies(tmp_path_factory.mktemp("bookies"), zookeeper.uri(), 2) as bookies:
            yield Shared(zookeeper.uri(), bookies)
    finally:
        zookeeper.stop()


@pytest.mark.parametrize(("words", "facts"), ROWS)
def test_both_shells_say_the_same(shared: Shared, words: str, facts: str) -> None:
    """The same facts, as often."""
    given = words.replace("BOOKIE", shared.bookie).replace("LEDGER", shared.ledger).split()
    theirs, ours = peer.shell(shared.metadata, *given), ok("shell", *given, metadata=shared.metadata).out
    assert re.findall(facts, ours), ours
    assert sorted(set(re.findall(facts, ours))) == sorted(set(re.findall(facts, theirs))), theirs


def test_apaches_shell_reads_a_restored_cluster(shared: Shared, tmp_path: Path) -> None:
    """A dump, restored at another path, is a cluster with its ledgers and cookies."""
    other = shared.metadata.removesuffix("/ledgers") + "/other/ledgers"
    ok("metadata", "dump", tmp_path / "dump", metadata=shared.metadata)
    ok("metadata", "restore", tmp_path / "dump", metadata=other)
    for words in ("whatisinstanceid", "listledgers -m", f"cookie_get {shared.bookie}", "listbookies -a"):
        facts = next(
            (facts for row, facts in ROWS if row.split()[:1] == words.split()[:1] and "list" not in row), WHOSE
        )
        before, after = (peer.shell(at, *words.split()) for at in (shared.metadata, other))
        assert sorted(re.findall(facts, before)) == sorted(re.findall(facts, after)), words
