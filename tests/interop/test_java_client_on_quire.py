"""
Apache's Java client on four quire bookies over a real ZooKeeper: everything that Pulsar's brokers do with a ledger.

One cluster for the module, in the hierarchical layout; the other layout has a short test of its own at the end.
"""

import re
from collections.abc import Iterator

import pytest

from quire.protocol.errors import LedgerFenced, NoSuchLedger, UnauthorizedAccess
from quire.tools.local_cluster.cluster import quire
from tests.interop import peer
from tests.interop.ours import DIGESTS, TEXT, Bookies, Ours, lines, pattern, sha256, wait_for_bookies
from tests.reactor import run

PROTOCOLS = ("v2", "v3")
FENCED = -101
TEXT_LINES = lines()


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A ZooKeeper with a cluster that `quire metadata init` made."""
    zookeeper = peer.ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    try:
        quire(["metadata", "init", "--metadata", zookeeper.uri()])
        yield zookeeper.uri()
    finally:
        zookeeper.stop()


@pytest.fixture(scope="module")
def bookies(metadata: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bookies]:
    with Bookies(tmp_path_factory.mktemp("bookies"), metadata, 4) as found:
        yield found


@pytest.fixture(scope="module")
def java(metadata: str, bookies: Bookies, tmp_path_factory: pytest.TempPathFactory) -> Iterator[peer.JavaClient]:
    with peer.JavaClient(metadata, tmp_path_factory.mktemp("java"), password="secret", timeout=10) as client:
        wait_for_bookies(client, 4)
        yield client


@pytest.fixture(scope="module")
def ours(metadata: str, bookies: Bookies) -> Iterator[Ours]:
    with Ours(metadata) as client:
        yield client


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lines_that_java_wrote_are_read_by_both(java: peer.JavaClient, ours: Ours, digest: str, protocol: str) -> None:
    """
    Written by Java, read by Java and by quire: the same SHA-256, for every digest and both generations of the protocol.
    """
    written = java.call("lines", file=TEXT, digest=digest, protocol=protocol)
    assert (written["entries"], written["failed"]) == (len(TEXT_LINES), 0)
    read = java.call("read", ledger=written["ledger"], digest=digest, protocol=protocol)
    assert read["sha256"] == written["sha256"] == sha256(TEXT_LINES)
    assert (read["closed"], read["last"], read["length"]) == (True, len(TEXT_LINES) - 1, sum(map(len, TEXT_LINES)))
    assert sha256(ours.read(written["ledger"], b"secret")) == written["sha256"]


@pytest.mark.parametrize("digest", DIGESTS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_lines_that_quire_wrote_are_read_by_java(java: peer.JavaClient, ours: Ours, digest: str, protocol: str) -> None:
    """Written by quire, read by Java: the same SHA-256, entry by entry, and in batches where the protocol has them."""
    ledger = ours.write(TEXT_LINES, password=b"secret", digest=digest)
    for how in ("read", "batch") if protocol == "v2" else ("read",):
        read = java.call("read", ledger=ledger, digest=digest, protocol=protocol, how=how)
        assert (how, read["sha256"], read["entries"]) == (how, sha256(TEXT_LINES), len(TEXT_LINES))


def test_quire_over_v3_writes_what_java_reads(metadata: str, java: peer.JavaClient) -> None:
    """With V3 forced on our side too."""
    with Ours(metadata, protocol="v3") as ours:
        ledger = ours.write(TEXT_LINES, password=b"secret")
        assert sha256(ours.read(ledger, b"secret")) == sha256(TEXT_LINES)
    assert java.call("read", ledger=ledger)["sha256"] == sha256(TEXT_LINES)


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_smallest_and_largest_entries(java: peer.JavaClient, ours: Ours, size: int, protocol: str) -> None:
    """Nothing, one byte, and nearly a whole frame."""
    created = java.call("create", protocol=protocol)
    java.call("append", ledger=created["ledger"], count=3, size=size, window=1)
    java.call("close", ledger=created["ledger"])
    assert ours.read(created["ledger"], b"secret") == [pattern(size)] * 3
    assert java.call("read", ledger=created["ledger"], protocol=protocol, batch=1)["bytes"] == 3 * size


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_striped_ledgers(java: peer.JavaClient, ours: Ours, protocol: str) -> None:
    """Ensemble 4, write quorum 2: each bookie holds half of the entries, both clients find all."""
    written = java.call("lines", file=TEXT, protocol=protocol, ensemble=4, write=2, ack=2)
    assert sha256(ours.read(written["ledger"], b"secret")) == written["sha256"]
    ledger = ours.write(TEXT_LINES, password=b"secret", ensemble_size=4, write_quorum=2, ack_quorum=2)
    assert java.call("read", ledger=ledger, protocol=protocol)["sha256"] == sha256(TEXT_LINES)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_quire_fences_a_java_writer(java: peer.JavaClient, ours: Ours, protocol: str) -> None:
    """
    Recovery by quire closes the ledger at its last acknowledged entry; the Java writer's next append is refused as
    fenced.
    """
    ledger = java.call("create", protocol=protocol)["ledger"]
    java.call("append", ledger=ledger, file=TEXT, to=1000)
    assert ours.read(ledger, b"secret") == TEXT_LINES[:1000]
    refused = java.call("append", ledger=ledger, count=5)
    assert (refused["failed"], refused["code"]) == (5, FENCED)
    assert ours.metadata(ledger).last_entry == 999
    assert java.call("read", ledger=ledger)["entries"] == 1000


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_java_fences_a_quire_writer(java: peer.JavaClient, ours: Ours, protocol: str) -> None:
    """The other way about; the writer's close writes nothing over what Java stored."""
    writer = ours.create(password=b"secret")
    ours.append(writer, TEXT_LINES[:1000])
    recovered = java.call("recover", ledger=writer.id, protocol=protocol)
    assert (recovered["last"], recovered["closed"]) == (999, True)
    with pytest.raises(LedgerFenced):
        ours.append(writer, [b"too late"])
    with pytest.raises(LedgerFenced):
        ours.finish(writer)
    assert java.call("read", ledger=writer.id, protocol=protocol)["sha256"] == sha256(TEXT_LINES[:1000])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_java_recovers_with_appends_under_way(java: peer.JavaClient, protocol: str) -> None:
    """A second Java client recovers while 1,000 appends are in flight, some rounds."""
    assert java.call("recoveries", rounds=3, inflight=1000, size=1024, protocol=protocol)["rounds"] == 3


def test_a_wrong_password_is_refused(java: peer.JavaClient, ours: Ours) -> None:
    """By both clients, with BookKeeper's code."""
    ledger = java.call("lines", file=TEXT, to=10)["ledger"]
    with pytest.raises(UnauthorizedAccess):
        ours.open(ledger, b"wrong")
    mine = ours.write([b"one"], password=b"secret")
    with pytest.raises(peer.PeerError) as refused:
        java.call("read", ledger=mine, password="wrong")
    assert refused.value.code == UnauthorizedAccess.code


def test_each_reads_the_metadata_of_the_other(java: peer.JavaClient, ours: Ours) -> None:
    """State, quorums, digest, custom metadata, end and length."""
    ledger = ours.write([b"one", b"three"], password=b"secret", digest="MAC", custom_metadata={"app": b"demo"})
    told = java.call("metadata", ledger=ledger)
    assert (told["state"], told["ensemble"], told["write"], told["ack"], told["digest"]) == ("CLOSED", 3, 3, 2, "MAC")
    assert (told["last"], told["length"], told["custom"]["app"]) == (1, 8, "demo")
    created = java.call("create", ensemble=4, write=3, ack=3, label="hello", digest="CRC32")["ledger"]
    found = ours.metadata(created)
    assert (found.ensemble_size, found.write_quorum, found.ack_quorum, found.state.name) == (4, 3, 3, "OPEN")
    assert (found.digest.name, found.password, found.custom["label"]) == ("CRC32", b"secret", b"hello")
    assert {str(fragment.first): list(fragment.bookies) for fragment in found.fragments} == java.call(
        "metadata", ledger=created
    )["fragments"]
    java.call("close", ledger=created)
    assert ours.metadata(created).state.name == "CLOSED"


def test_both_list_and_delete_the_same_ledgers(java: peer.JavaClient, ours: Ours) -> None:
    """What one deletes is gone for the other."""
    mine, theirs = ours.write([b"mine"], password=b"secret"), java.call("lines", file=TEXT, to=1)["ledger"]
    assert {mine, theirs} <= set(ours.ledger_ids())
    assert java.call("list")["ledgers"] == sorted(ours.ledger_ids())
    java.call("delete", ledger=mine)

    async def gone() -> None:
        await ours.client.delete_ledger(theirs)

    run(gone)
    with pytest.raises(NoSuchLedger):
        ours.open(mine, b"secret")
    with pytest.raises(peer.PeerError) as refused:
        java.call("read", ledger=theirs)
    assert refused.value.code in (-7, -25)
    assert not {mine, theirs} & set(ours.ledger_ids())


def test_java_tails_by_long_poll(java: peer.JavaClient) -> None:
    """A Java reader that follows a Java writer through our bookies' long polls sees every entry, soon."""
    seen = java.call("tail", entries=1000, rate=500, size=100)
    assert seen["entries"] == 1000
    assert seen["p50_ms"] < 500


def test_the_explicit_lac_of_java_reaches_our_reader(java: peer.JavaClient, ours: Ours) -> None:
    """Without a further append, the last entry becomes visible."""
    ledger = java.call("create", protocol="v3", explicit_lac_ms=20)["ledger"]
    java.call("append", ledger=ledger, count=10, protocol="v3")

    async def follow() -> int:
        reader = await ours.client.open_ledger(ledger, password=b"secret", recover=False)
        seen = -1
        async for entries in reader.tail(timeout=5.0):
            seen = entries[-1].entry_id
            if seen == 9:
                break
        await reader.close()
        return seen

    assert run(follow) == 9
    java.call("close", ledger=ledger)


def test_our_explicit_lac_reaches_a_java_reader(java: peer.JavaClient, ours: Ours) -> None:
    """`write_lac` sends it to our bookies, Java's `readExplicitLastConfirmed` finds it."""
    writer = ours.create(password=b"secret")
    ours.append(writer, [b"x"] * 10)

    async def tell() -> None:
        await writer.write_lac()

    run(tell)
    assert java.call("lac", ledger=writer.id, protocol="v3")["explicit"] == 9
    ours.finish(writer)


def test_java_defers_syncs_and_forces(java: peer.JavaClient, ours: Ours) -> None:
    """With DEFERRED_SYNC the last add confirmed does not move until a force."""
    created = java.call("create", protocol="v3", deferred_sync="yes")["ledger"]
    java.call("append", ledger=created, count=20, protocol="v3")
    forced = java.call("force", ledger=created)
    assert forced["last"] == 19
    java.call("close", ledger=created)
    assert len(ours.read(created, b"secret")) == 20


def test_java_asks_the_bookies_for_their_disks(java: peer.JavaClient, bookies: Bookies) -> None:
    """GET_BOOKIE_INFO of each: total above free, both above nothing."""
    found = java.call("info", protocol="v3")["bookies"]
    assert sorted(found) == sorted(bookies.ids)
    assert all(space["total"] >= space["free"] > 0 for space in found.values())


def test_apaches_shell_sees_our_cluster(java: peer.JavaClient, ours: Ours, metadata: str, bookies: Bookies) -> None:
    """`bookkeeper shell` lists our bookies with their disks, shows and reads our ledger, and writes one of its own."""
    ledger = ours.write([b"shell entry one", b"shell entry two"], password=b"")
    listed, disks = peer.shell(metadata, "listbookies", "-rw"), peer.shell(metadata, "bookieinfo")
    assert [
        bookie for bookie in bookies.ids if f"BookieID:{bookie}," not in listed or f"BookieID:{bookie}," not in disks
    ] == []
    assert re.search(r"\bfree\b", disks, re.IGNORECASE)
    shown = peer.shell(metadata, "ledgermetadata", "-ledgerid", str(ledger))
    assert "state=CLOSED, length=30, lastEntryId=1, digestType=CRC32C" in shown
    assert "shell entry two" in peer.shell(metadata, "readledger", "-ledgerid", str(ledger), "-msg")
    assert re.search(rf"ledgerId(: |=){ledger}\b", peer.shell(metadata, "listledgers"), re.IGNORECASE)
    tested = peer.shell(
        metadata, "simpletest", "-ensemble", "3", "-writeQuorum", "3", "-ackQuorum", "2", "-numEntries", "100"
    )
    assert "100 entries written" in tested


def test_java_repairs_what_our_dead_bookie_held_last(java: peer.JavaClient, ours: Ours, bookies: Bookies) -> None:
    """
    A Java writer goes on through the SIGKILL of one of our bookies; Java's own repair copies what that one held to the
    others.
    """
    ledger = java.call("create")["ledger"]
    java.call("append", ledger=ledger, file=TEXT, to=1000)
    lost = java.call("metadata", ledger=ledger)["fragments"]["0"][0]
    java.call("append", ledger=ledger, file=TEXT, **{"from": 1000}, rate=3000, background="yes")
    bookies.kill(lost)
    done = java.call("await", ledger=ledger)
    assert (done["failed"], done["last"]) == (0, len(TEXT_LINES) - 1)
    java.call("close", ledger=ledger)
    fragments = java.call("metadata", ledger=ledger)["fragments"]
    assert len(fragments) == 2, "the writer replaced the dead bookie"
    assert sha256(ours.read(ledger, b"secret")) == sha256(TEXT_LINES)
    wait_for_bookies(java, 3)
    java.call("repair", ledger=ledger, bookie=lost)
    assert all(lost not in ensemble for ensemble in java.call("metadata", ledger=ledger)["fragments"].values())
    assert sha256(ours.read(ledger, b"secret")) == sha256(TEXT_LINES)
    bookies.restart(lost)
    wait_for_bookies(java, 4)


def test_the_long_hierarchical_layout(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Another cluster, with ledger ids of 64 bits in their znodes: both clients write, read and list."""
    zookeeper = peer.ZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    uri = zookeeper.uri("longhierarchical")
    try:
        quire(["metadata", "init", "--metadata", uri])
        with (
            Bookies(tmp_path_factory.mktemp("bookies"), uri, 3),
            peer.JavaClient(uri, tmp_path_factory.mktemp("java"), password="secret") as java,
            Ours(uri) as ours,
        ):
            wait_for_bookies(java, 3)
            theirs = java.call("lines", file=TEXT)["ledger"]
            mine = ours.write(TEXT_LINES, password=b"secret")
            assert sha256(ours.read(theirs, b"secret")) == sha256(TEXT_LINES)
            assert java.call("read", ledger=mine)["sha256"] == sha256(TEXT_LINES)
            assert java.call("list")["ledgers"] == sorted(ours.ledger_ids()) == sorted([theirs, mine])
    finally:
        zookeeper.stop()
