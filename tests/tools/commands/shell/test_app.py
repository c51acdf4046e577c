"""`quire shell`: each of the names of BookKeeper's shell, with its options, on one small cluster."""

import re
import socket
from pathlib import Path
from typing import NamedTuple

import pytest

from quire.metadata.uri import open_store
from quire.tools.commands.shell.app import NAMES
from quire.tools.local_cluster.cluster import LocalCluster
from tests.reactor import reactor, run
from tests.tools.command import ok, quire, refused

# SPDX-License-Identifier: Apache-2.0

LINES = [f"line {number}" for number in range(50)]


class Made(NamedTuple):
    """Four bookies, of which the last is down, and a ledger of 50 entries on all of them."""

    uri: str
    ids: list[str]
    up: Path  # a configuration
    down: Path
    ledger: int


@pytest.fixture(scope="module")
def made(cluster: LocalCluster) -> Made:
    written = "".join(f"{line}\n" for line in LINES).encode()
    quorums = ("--ensemble", 4, "--write", 4, "--ack", 4)
    done = ok("ledger", "write", "--lines", *quorums, "--json", metadata=cluster.uri, stdin=written)
    assert cluster.stop_bookie(cluster.ids[-1])
    confs = [bookie.conf for bookie in cluster.bookies]
    return Made(cluster.uri, cluster.ids, confs[0], confs[-1], done.document["ledger"])


# By name: options, or commands one after the other, and what the output must hold.  UP and DOWN are bookies, LEDGER one
# of the ledgers.
ROWS: list[tuple[str, str]] = [
    ("whatisinstanceid", r"Cluster metadataServiceUri=sqlite:\S+ instanceId=[0-9a-f-]{36}\n"),
    ("whoisauditor", r"No auditor elected\n"),
    ("clusterinfo", r'"totalBookiesCount": 4, "writableBookiesCount": 3,.*"unavailableBookiesCount": 1'),
    (
        "autorecovery -disable; autorecovery; autorecovery --enable",
        r"(Autorecovery status=disabled\n){2}Autorecovery status=enabled\n",
    ),
    ("queryautorecoverystatus -v", r"No Ledger is being recovered\n"),
    ("listunderreplicated -pmr -prw", r"Under replicated ledger count count=0\n"),
    (
        "lostbookierecoverydelay -s 0; lostbookierecoverydelay -s 30; lostbookierecoverydelay --get",
        r"delay=0\n(?s:.*)delay=30\n(?s:.*)delay=30\n",
    ),
    ("triggeraudit", r"Triggered audit\n"),
    (
        "forceauditchecks -calc --replicascheck",
        r"Set last run check=checkallledgerscheck ctime=\d+\nSet last run check=r",
    ),
    (
        "listbookies -rw",
        r"ReadWrite Bookies :\n(BookieID:127\.0\.0\.1:(\d+), IP:127\.0\.0\.1, Port:\2, Hostname:\S+\n){3}$",
    ),
    ("listbookies -ro", r"Readonly Bookies :\n$"),
    ("listbookies --all -h", r"(?s)All Bookies :\n.*BookieID:DOWN, IP:UNKNOWN, Port:0, Hostname:UNKNOWN\n"),
    (
        "bookieinfo",
        r"Free disk space info bookie=.BookieID:UP, IP:127.0.0.1, [^=]+ free=\d+ freeReadable=\S+ total=\d+"
        r"(?s:.*)capacity in the cluster total=\d+",
    ),
    ("endpointinfo -b UP", r"BookieId bookieId=UP\nproperty key=quire(?s:.*)Endpoint id=bookie protocol=\S+ host=127"),
    ("recover DOWN -q", r"Ensemble ledgerId=LEDGER firstEntryId=0 bookies=\S*DOWN\*\S*\n(?s:.*)bookieId=DOWN count=1"),
    ("recover DOWN -dr -force", r"Would recover bookies bookieId=DOWN ledgers=1 entries=50 "),
    ("cookie_get DOWN", r'---\n5\nbookieHost: "DOWN"\n(?s:.*)---\n$'),
    ("listledgers", r"Ledger ledgerId=LEDGER\n"),
    (
        "listledgers -meta",
        r'Ledger ledgerId=LEDGER metadata="LedgerMetadata{formatVersion=3, ensembleSize=4, .*lastEntryId=49, ',
    ),
    ("listledgers -bookieid DOWN", r"Ledger ledgerId=LEDGER\n"),
    ("listledgers --bookieid nobody", r"^$"),
    (
        "ledgermetadata -l LEDGER",
        r"ledgerID ledgerId=LEDGER .* state=CLOSED, length=\d+, lastEntryId=49, digestType=CRC32C, ensembles={0=\[127",
    ),
    (
        "readledger -ledgerid LEDGER -fe 7 -le 8",
        r"^Entry ledgerId=LEDGER entryId=7 entrySize=7\nEntry \S+ entryId=8 \S+\n$",
    ),
    ("readledger -l LEDGER -m -le 0", r'^Entry ledgerId=LEDGER \S+ \S+ data="line 0\\n"\n$'),
    (
        "-entryformat hex readledger -l LEDGER -b UP -fe 48 -m",
        rf"^(Entry \S+ \S+ entrySize=8 data={b'line 4'.hex()}3[89]0a\n){{2}}$",
    ),
    ("-ledgeridformat uuid listledgers", r"ledgerId=00000000-0000-0000-0000-0000000000"),
    ("help listledgers", r"^listledgers \[-m\] \[-bookieid ID\]\n  Lists the ledgers"),
    ("help", r"(?s)activeledgers -l HEX.*whoisauditor\n"),
]
DIRECTORIES: list[tuple[str, str]] = [
    ("lastmark", r"LastLogMark : Journal Id - \d+\([0-9a-f]{16}\.qj\), Pos - \d+\n"),
    ("listfilesondisc", r"(?s)journal files.*/0000000000000000\.qj\n.*entrylog files.*\.log\n.*index files.*/runs"),
    ("listfilesondisc -txn", r"^-+ Printing the list of journal files -+\n/\S+\.qj\n"),
    (
        "ledger -m LEDGER",
        r"^Ledger ledgerId=LEDGER fenced=false hasMasterKey=true\nentry 0\t:\t\(log: 0, pos: 1028\)\n",
    ),
    ("readlog 0", r"^Entry ledgerId=LEDGER entryId=0 position=1024 entrySize=\d+\n"),
    (
        "-entryformat hex readlog 0.log -l LEDGER -e 49 -m",
        r"^Entry ledgerId=LEDGER entryId=49 position=\d+ entrySize=\d+ data=[0-9a-f]+\n$",
    ),
    ("readlog 0 -sp 1024 -ep 1024", r"^Entry \S+ entryId=0 position=1024 \S+\n$"),
    ("readlogmetadata 0", r"^Entry log logId=0 totalSize=(\d+)\nLedger ledgerId=LEDGER size=\1\n$"),
    (
        "activeledgers -l 0",
        r"^Entry log logId=0 usage=1\.0 totalSize=(\d+) activeSize=\1\nActive ledger ledgerId=LEDGER size=\1",
    ),
    ("readjournal 0", r"(?s)Entry ledgerId=LEDGER entryId=0 position=0\n.*META ledgerId=0 kind=end position=\d+\n"),
    (
        "-entryformat hex readjournal 0000000000000000.qj -m",
        r"Entry ledgerId=LEDGER entryId=0 position=\d+ entrySize=\d+ data=[0-9a-f]+\n",
    ),
    ("localconsistencycheck", r"Local consistency check passed entry_logs=\d+ ledgers=1 entries=\d+\n"),
    (
        "check-db-ledgers-index -v",
        r"Ledger ledgerId=LEDGER fenced=false\nChecked ledgers index directory=\S+ ledgers=1\n",
    ),
    ("rebuild-db-ledger-locations-index", r"Rebuilt index directories=\[\{"),
    ("updatecookie -list", r"(Cookie bookieId=DOWN place=\S+ cookie=\S+.*\n){3}"),
    ("rebuild-db-ledgers-index -v", r"Rebuilt index directories=\[\{"),
]
ALONE = {  # in tests of their own: they change what is there
    "metaformat", "initnewcluster", "nukeexistingcluster", "initbookie", "bookieformat", "decommissionbookie",
    "updateledgers", "updateBookieInLedger", "cookie_create", "cookie_update", "cookie_delete", "cookie_generate",
    "deleteledger", "simpletest", "bookiesanity", "convert-to-db-storage", "convert-to-interleaved-storage",
    "regenerate-interleaved-storage-index-file",
}  # fmt: skip
APACHES = [
    "activeledgers",
    "autorecovery",
    "bookieformat",
    "bookieinfo",
    "bookiesanity",
    "check-db-ledgers-index",
    "clusterinfo",
    "convert-to-db-storage",
    "convert-to-interleaved-storage",
    "cookie_create",
    "cookie_delete",
    "cookie_generate",
    "cookie_get",
    "cookie_update",
    "decommissionbookie",
    "deleteledger",
    "endpointinfo",
    "forceauditchecks",
    "help",
    "initbookie",
    "initnewcluster",
    "lastmark",
    "ledger",
    "ledgermetadata",
    "listbookies",
    "listfilesondisc",
    "listledgers",
    "listunderreplicated",
    "localconsistencycheck",
    "lostbookierecoverydelay",
    "metaformat",
    "nukeexistingcluster",
    "queryautorecoverystatus",
    "readjournal",
    "readledger",
    "readlog",
    "readlogmetadata",
    "rebuild-db-ledger-locations-index",
    "rebuild-db-ledgers-index",
    "recover",
    "regenerate-interleaved-storage-index-file",
    "simpletest",
    "triggeraudit",
    "updateBookieInLedger",
    "updatecookie",
    "updateledgers",
    "whatisinstanceid",
    "whoisauditor",
]


def test_apaches_names() -> None:
    """All 48, no other, and each is met by a test here."""
    assert len(APACHES) == 48
    assert sorted(NAMES) == sorted(APACHES)
    assert {name_in(words) for words, _ in ROWS + DIRECTORIES} | ALONE == set(APACHES)


def name_in(words: str) -> str:
    return next(word for word in words.split() if word in NAMES)


@pytest.mark.parametrize(("words", "expected"), ROWS)
def test_a_name_of_the_cluster(made: Made, words: str, expected: str) -> None:
    """Exit status 0, and what scripts look for."""
    some = [ok("shell", *each.split(), metadata=made.uri) for each in filled(words, made).split("; ")]
    said = "".join(done.out for done in some)
    assert re.search(filled(expected, made), said), said


@pytest.mark.parametrize(("words", "expected"), DIRECTORIES)
def test_a_name_of_a_stopped_bookie(made: Made, words: str, expected: str) -> None:
    """The configuration names directories and store."""
    said = ok("shell", "-conf", made.down, *filled(words, made).split()).out
    assert re.search(filled(expected, made), said), said


def filled(text: str, made: Made) -> str:
    for word, value in {"UP": made.ids[0], "DOWN": made.ids[-1], "LEDGER": made.ledger}.items():
        text = re.sub(rf"\b{word}\b", str(value), text)
    return text


def test_records_as_json(made: Made) -> None:
    """One document a record, on either side of the name."""
    expected = [{"message": "Ledger", "ledgerId": made.ledger}]
    assert ok("shell", "--json", "listledgers", "-bookieid", made.ids[-1], metadata=made.uri).rows == expected
    assert ok("shell", "listledgers", "--json", "--metadata", made.uri, "-bookieid", made.ids[-1]).rows == expected


def test_what_is_wrong_is_said_in_one_line(made: Made) -> None:
    """A name, an option, a configuration; without a name the list of them."""
    assert "did you mean listledgers?" in refused(2, "shell", "listledger")
    assert "usage: lostbookierecoverydelay [-g] [-s SECONDS]" in refused(2, "shell", "lostbookierecoverydelay", "-x")
    assert "-conf FILE NAME" in refused(2, "shell", "lastmark")
    assert "is no file" in refused(2, "shell", "-conf", "/nowhere", "lastmark")
    assert "is in use" in refused(1, "shell", "-conf", made.up, "ledger", made.ledger)
    assert "exactly one" in refused(2, "shell", "listbookies", metadata=made.uri)
    bare = quire("shell")
    assert (bare.code, "whoisauditor" in bare.out) == (2, True)


@pytest.mark.parametrize("name", sorted(ALONE & {name for name in NAMES if "storage" in name}))
def test_conversions_are_refused_with_the_reason(name: str) -> None:
    """Nothing has to be converted."""
    assert "is not needed" in refused(1, "shell", name)


def test_a_cluster_is_made_formatted_and_removed(empty_store: str) -> None:
    """A format makes another one, and only when forced; a root or id that is not its own removes nothing."""
    first = made_in(ok("shell", "initnewcluster", metadata=empty_store).out)
    assert "ClusterExists" in refused(1, "shell", "initnewcluster", metadata=empty_store)
    assert "ClusterExists" in refused(1, "shell", "metaformat", "-nonInteractive", metadata=empty_store)
    second = made_in(ok("shell", "metaformat", "-n", "--force", metadata=empty_store).out)
    assert first != second
    assert made_in(ok("shell", "metaformat", metadata=empty_store, stdin=b"y\n").out) not in {first, second}
    nuke = ("shell", "nukeexistingcluster", "-p")
    assert "WrongCluster" in refused(1, *nuke, "/other", "-f", metadata=empty_store)
    assert "WrongCluster" in refused(1, *nuke, "/ledgers", "-i", second, metadata=empty_store)
    ok(*nuke, "/ledgers", "-f", metadata=empty_store)
    assert "NoCluster" in refused(1, "shell", "whatisinstanceid", metadata=empty_store)


def made_in(text: str) -> str:
    return text.split("instanceId=")[1].strip()


def test_ledgers_are_written_dumped_and_deleted(made: Made, tmp_path: Path) -> None:
    """A test ledger stays, that of the sanity test goes; metadata goes to a file and back."""
    said = ok("shell", "simpletest", "-ensemble", 3, "-n", 7, metadata=made.uri).out
    ledger = int(re.findall(r"^Ledger ID ledgerId=(\d+)\n7 entries written to ledger \1 lastEntryId=6\n$", said)[0])
    dump = ("shell", "ledgermetadata", "-ledgerid", ledger)
    ok(*dump, "-dumptofile", tmp_path / "one", metadata=made.uri)
    assert "LedgerExist" in refused(1, *dump, "-restorefromfile", tmp_path / "one", metadata=made.uri)
    ok(*dump, "-restorefromfile", tmp_path / "one", "-update", metadata=made.uri)
    ok("shell", "deleteledger", "-l", ledger, metadata=made.uri, stdin=b"y\n")
    ok(*dump, "-restorefromfile", tmp_path / "one", metadata=made.uri)
    assert ok("shell", "readledger", "-l", ledger, metadata=made.uri).out.count("\n") == 7
    ok("shell", "deleteledger", "--ledgerid", ledger, "-force", metadata=made.uri)
    sane = ok("shell", "-conf", made.up, "bookiesanity", "-e", 5).out
    assert f"passed bookieId={made.ids[0]}" in sane
    assert "NotEnoughBookies" in refused(1, "shell", "-conf", made.down, "bookiesanity")
    assert "NoSuchLedger" in refused(1, *dump, metadata=made.uri)


def test_a_bookie_of_another_id_is_named_in_ledgers(made: Made, tmp_path: Path) -> None:
    """Its cookie is made from words; the old one must be down, the new one known; there and back."""
    file, ledger = tmp_path / "cookie", made.ledger
    ok("shell", "cookie_generate", "-j", "/j", "-l", "/l1,/l2", "-o", file, "other:1", metadata=made.uri)
    rename = ("shell", "updateBookieInLedger", "-s", 1000, "-sb")
    assert "other:1 has no cookie" in refused(1, *rename, made.ids[-1], "-db", "other:1", metadata=made.uri)
    ok("shell", "cookie_create", "-cf", file, "other:1", metadata=made.uri)
    assert "CookieExists" in refused(1, "shell", "cookie_create", "-cf", file, "other:1", metadata=made.uri)
    ok("shell", "cookie_update", "-cookie-file", file, "other:1", metadata=made.uri)
    assert "is the cookie of other:1" in refused(2, "shell", "cookie_update", "-cf", file, "b:2", metadata=made.uri)
    assert "is registered" in refused(1, *rename, made.ids[0], "-db", "other:1", metadata=made.uri)
    there = ok(*rename, made.ids[-1], "-db", "other:1", metadata=made.uri).out
    assert there == "Updated ledgers issued=1 updated=1\n"
    assert f"ledgerId={ledger}\n" in ok("shell", "listledgers", "-bookieid", "other:1", metadata=made.uri).out
    clash = quire(*rename, "other:1", "-db", made.ids[0], metadata=made.uri)
    assert (clash.code, "they are two" in clash.err) == (1, True)
    ok(*rename, "other:1", "-db", made.ids[-1], metadata=made.uri)
    assert "removed=true" in ok("shell", "cookie_delete", "other:1", metadata=made.uri).out
    assert "CookieNotFound" in refused(1, "shell", "cookie_get", "other:1", metadata=made.uri)


def test_a_bookie_that_is_down_goes(made: Made) -> None:
    """After all others of this file: its entries need one bookie more than there is, which is said."""
    done = quire("shell", "decommissionbookie", "-bookieid", made.ids[-1], metadata=made.uri)
    assert (done.code, "Traceback" in done.err) == (1, False)
    ok("shell", "deleteledger", "-l", made.ledger, "-f", metadata=made.uri)
    said = ok("shell", "decommissionbookie", "-bookieid", made.ids[-1], metadata=made.uri).out
    assert said == f"Decommissioned bookie bookieId={made.ids[-1]} ledgers=0 entries=0 bytes=0 failed=0\n"
    assert made.ids[-1] not in ok("shell", "listbookies", "-a", metadata=made.uri).out


@pytest.fixture
def own(empty_store: str, tmp_path: Path) -> Path:
    """The configuration of a bookie whose id is its address."""
    ok("metadata", "init", metadata=empty_store)
    path = tmp_path / "bookie.conf"
    path.write_text(
        f"metadataServiceUri={empty_store}\njournalDirectories={tmp_path}/journal\nledgerDirectories={tmp_path}/l1\n"
        "listeningInterface=127.0.0.1\nallowLoopback=true\n"
    )
    return path


def test_a_new_bookie_is_initialised_once_and_formatted(own: Path) -> None:
    """With BOOKIE_CONF or -conf; a format needs force, or an answer, and takes the cookie along."""
    assert ok("shell", "-conf", own, "initbookie").out == "Initialized bookie bookieId=127.0.0.1:3181\n"
    assert "knows 127.0.0.1:3181 already" in refused(1, "shell", "-conf", own, "initbookie")
    assert "-force" in refused(1, "shell", "-conf", own, "bookieformat", "-nonInteractive")
    assert "cookie_removed=true" in ok("shell", "-conf", own, "bookieformat", "-n", "-f", "-d").out
    assert "was formatted" in refused(1, "shell", "-conf", own, "initbookie")


def test_a_configuration_without_directories_names_the_store(own: Path, tmp_path: Path) -> None:
    """As AutoRecovery's does; what needs a bookie's says what is missing."""
    alone = tmp_path / "autorecovery.conf"
    alone.write_text(own.read_text().splitlines()[0] + "\n")
    assert ok("shell", "-conf", alone, "whatisinstanceid").out == ok("shell", "-conf", own, "whatisinstanceid").out
    assert "journalDirectories" in refused(2, "shell", "-conf", alone, "lastmark")


def test_a_bookie_gets_the_id_of_its_host_and_more_directories(own: Path, tmp_path: Path) -> None:
    """Cookies first, then ledgers; the old id is not taken again; data is given up only by force."""
    ok("shell", "-conf", own, "initbookie")
    assert "must have the new kind of id" in refused(2, "shell", "-conf", own, "updatecookie", "-b", "hostname")
    own.write_text(own.read_text() + "useHostNameAsBookieID=true\n")
    new = re.findall(r"bookieId=(\S+) before=127", ok("shell", "-conf", own, "updatecookie", "-b", "hostname").out)
    assert new == [f"{socket.getfqdn()}:3181"]
    assert ok("shell", "-conf", own, "updateledgers", "-b", "hostname").out == "Updated ledgers issued=0 updated=0\n"
    assert "CookieNotFound" in refused(1, "shell", "-conf", own, "cookie_get", "127.0.0.1:3181")
    own.write_text(own.read_text().replace("/l1\n", f"/l1,{tmp_path}/l2\n"))
    assert f"{tmp_path}/l2" in ok("shell", "-conf", own, "updatecookie", "-expandstorage").out
    listed = ok("shell", "-conf", own, "updatecookie", "--list").out
    assert (listed.count(new[0]), listed.count("none")) == (8, 0)
    (tmp_path / "l1" / "current" / "0.log").write_bytes(b"data")
    assert "l1 holds data" in refused(1, "shell", "-conf", own, "updatecookie", "-delete")
    ok("shell", "-conf", own, "updatecookie", "-delete", "force")
    assert "CookieNotFound" in refused(1, "shell", "-conf", own, "cookie_get", new[0])


def test_the_repair_queue_and_its_workers(own: Path, empty_store: str) -> None:
    """Who repairs a ledger now, which bookies it lacks, and only those that are asked for."""
    seen: list[str] = []

    async def queued() -> None:
        from twisted.internet.threads import deferToThread

        store = await open_store(reactor, empty_store)
        await store.repairs.mark(7, ["b1"], 1000)
        await store.repairs.mark(8, ["b2"], None)
        await store.repairs.lock(8)
        for words in ("listunderreplicated -pmr -prw", "listunderreplicated -mr b1 -c", "queryautorecoverystatus"):
            seen.append((await deferToThread(ok, "shell", *words.split(), metadata=empty_store)).out)
        await store.close()

    run(queued)
    host = socket.gethostname()
    assert seen == [
        "Under replicated ledger ledgerId=7 ctime=1000 missingReplica=b1\n"
        f"Under replicated ledger ledgerId=8 missingReplica=b2 replicationWorkerId={host}\n"
        "Under replicated ledger count count=2\n",
        "Under replicated ledger count count=1\n",
        f"Ledger under repair ledgerId=8 bookieId={host}\n",
    ]
