"""
quire's client on four Apache bookies, in a cluster that Apache's own shell initialised.

One cluster for the module.  The same stories as on our own bookies: what the client may expect of them is BookKeeper's
behaviour, not ours.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from quire.client.api import Reader
from quire.protocol.errors import LedgerFenced, NoSuchLedger, NotEnoughBookies, UnauthorizedAccess
from quire.tools.local_cluster.cluster import quire
from quire.tools.local_cluster.process import NotStarted
from tests.interop import peer
from tests.interop.ours import DIGESTS, TEXT, Ours, lines, sha256, wait_for_bookies
from tests.reactor import run

PROTOCOLS = ("v2", "v3")
TEXT_LINES = lines()


@pytest.fixture(scope="module")
def cluster() -> Iterator[peer.Cluster]:
    with peer.Cluster(bookies=4) as found:
        yield found


@pytest.fixture(scope="module")
def java(cluster: peer.Cluster) -> Iterator[peer.JavaClient]:
    with cluster.client(password="secret", timeout=10) as client:
        wait_for_bookies(client, 4)
        yield client


@pytest.fixture(scope="module", params=PROTOCOLS)
def ours(request: pytest.FixtureRequest, cluster: peer.Cluster, java: peer.JavaClient) -> Iterator[Ours]:
    """Our client, once with V2 and once with V3 forced."""
    with Ours(cluster.metadata, protocol=request.param) as client:
        yield client


@pytest.mark.parametrize("digest", DIGESTS)
def test_lines_go_both_ways(java: peer.JavaClient, ours: Ours, digest: str) -> None:
    """Written by either, read by the other: the same SHA-256, for every digest."""
    mine = ours.write(TEXT_LINES, password=b"secret", digest=digest)
    assert java.call("read", ledger=mine, digest=digest)["sha256"] == sha256(TEXT_LINES)
    theirs = java.call("lines", file=TEXT, digest=digest)["ledger"]
    assert sha256(ours.read(theirs, b"secret")) == sha256(TEXT_LINES)
    assert sha256(ours.read(mine, b"secret")) == sha256(TEXT_LINES)


def test_striped_ledgers(java: peer.JavaClient, ours: Ours) -> None:
    """Ensemble 4, write quorum 2."""
    mine = ours.write(TEXT_LINES, password=b"secret", ensemble_size=4, write_quorum=2, ack_quorum=2)
    assert java.call("read", ledger=mine)["sha256"] == sha256(TEXT_LINES)
    assert sha256(ours.read(mine, b"secret")) == sha256(TEXT_LINES)


def test_large_entries(java: peer.JavaClient, ours: Ours) -> None:
    """Entries of 1 MiB, several in one batch."""
    payloads = [bytes([number]) * (1 << 20) for number in range(9)]
    mine = ours.write(payloads, password=b"secret")
    assert java.call("read", ledger=mine, batch=2)["sha256"] == sha256(payloads)
    assert ours.read(mine, b"secret") == payloads


def test_quire_recovers_what_a_java_writer_left(java: peer.JavaClient, ours: Ours) -> None:
    """And fences it on Java's bookies."""
    ledger = java.call("create")["ledger"]
    java.call("append", ledger=ledger, file=TEXT, to=1000)
    assert ours.read(ledger, b"secret") == TEXT_LINES[:1000]
    assert java.call("append", ledger=ledger, count=1)["code"] == LedgerFenced.code


def test_java_recovers_what_a_quire_writer_left(java: peer.JavaClient, ours: Ours) -> None:
    """Our writer learns that it was fenced, from the bookies."""
    writer = ours.create(password=b"secret")
    ours.append(writer, TEXT_LINES[:1000])
    assert java.call("recover", ledger=writer.id)["last"] == 999
    with pytest.raises(LedgerFenced):
        ours.append(writer, [b"too late"])
    assert ours.read(writer.id, b"secret") == TEXT_LINES[:1000]


def test_quire_recovers_its_own_with_appends_under_way(ours: Ours) -> None:
    """What was acknowledged is there; what was not is there without a gap, or not at all."""

    async def story() -> tuple[int, list[bytes]]:
        writer = await ours.client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret")
        await writer.append_many(TEXT_LINES[:500])
        pending = writer.append_many(TEXT_LINES[500:1500])
        reader = await ours.client.open_ledger(writer.id, password=b"secret")
        acknowledged = 499
        with contextlib.suppress(LedgerFenced):
            acknowledged = (await pending)[-1]
        found: list[bytes] = []
        async for entries in reader.stream():
            found.extend(entry.data for entry in entries)
        return acknowledged, found

    for _round in range(5):
        acknowledged, found = run(story)
        assert len(found) > acknowledged
        assert found == TEXT_LINES[: len(found)]


def test_quire_looks_at_an_open_ledger_without_fencing(java: peer.JavaClient, ours: Ours) -> None:
    """`recover=False` reads up to the last add confirmed; the Java writer goes on."""
    ledger = java.call("create")["ledger"]
    java.call("append", ledger=ledger, count=100, window=1)

    async def look() -> tuple[int, int]:
        reader: Reader = await ours.client.open_ledger(ledger, password=b"secret", recover=False)
        last = await reader.read_last_confirmed()
        found = await reader.read_unconfirmed(0, 99)
        await reader.close()
        return last, len(found)

    last, unconfirmed = run(look)
    assert last >= 98
    assert unconfirmed == 100
    assert java.call("append", ledger=ledger, count=10)["failed"] == 0
    java.call("close", ledger=ledger)


def test_quire_tails_a_java_writer(java: peer.JavaClient, ours: Ours) -> None:
    """Long polls on Java's bookies: each entry once and in order, and the end when Java closes the ledger."""
    ledger = java.call("create")["ledger"]
    java.call("append", ledger=ledger, count=1)

    async def follow() -> list[int]:
        reader = await ours.client.open_ledger(ledger, password=b"secret", recover=False)
        seen: list[int] = []
        async for entries in reader.tail(timeout=20.0):
            seen.extend(entry.entry_id for entry in entries)
        await reader.close()
        return seen

    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(run, follow, 60)
        assert java.call("append", ledger=ledger, count=1000, rate=1000)["failed"] == 0
        java.call("close", ledger=ledger)
        assert following.result() == list(range(1001))


def test_force_and_explicit_lac(java: peer.JavaClient, ours: Ours) -> None:
    """DEFERRED_SYNC with force, and `write_lac`, on Java's bookies."""

    async def story() -> int:
        writer = await ours.client.create_ledger(
            ensemble_size=3, write_quorum=3, ack_quorum=2, password=b"secret", write_flags="DEFERRED_SYNC"
        )
        await writer.append_many([b"x"] * 10)
        await writer.force()
        await writer.write_lac()
        assert writer.last_add_confirmed == 9
        seen = java.call("lac", ledger=writer.id, protocol="v3")["explicit"]
        await writer.close()
        return int(seen)

    assert run(story) == 9


def test_refusals(java: peer.JavaClient, ours: Ours) -> None:
    """A wrong password, a ledger that is not there, an ensemble larger than the cluster."""
    ledger = java.call("lines", file=TEXT, to=5)["ledger"]
    with pytest.raises(UnauthorizedAccess):
        ours.open(ledger, b"wrong")
    java.call("delete", ledger=ledger)
    with pytest.raises(NoSuchLedger):
        ours.open(ledger, b"secret")
    with pytest.raises(NotEnoughBookies, match="5"):
        ours.create(ensemble_size=5, write_quorum=3, ack_quorum=2)


def test_the_death_of_a_java_bookie(cluster: peer.Cluster, java: peer.JavaClient, ours: Ours) -> None:
    """SIGKILL in the middle: our writer replaces it and goes on; all is read back by both."""
    wait_for_bookies(java, 4)
    writer = ours.create(password=b"secret")
    ours.append(writer, TEXT_LINES[:3000])
    lost = next(bookie for bookie in cluster.bookies if bookie.id == writer.metadata.last_fragment.bookies[1])
    lost.kill()
    ours.append(writer, TEXT_LINES[3000:])
    ours.finish(writer)
    assert writer.ensemble_changes >= 1
    assert lost.id not in ours.metadata(writer.id).last_fragment.bookies
    assert java.call("read", ledger=writer.id)["sha256"] == sha256(TEXT_LINES)
    assert sha256(ours.read(writer.id, b"secret")) == sha256(TEXT_LINES)
    wait_for_bookies(java, 3)  # else the registration that is seen may be the one from before the kill
    lost.start()
    wait_for_bookies(java, 4)


def test_quire_decommissions_a_dead_java_bookie(cluster: peer.Cluster, java: peer.JavaClient, ours: Ours) -> None:
    """
    With a fifth bookie as the spare, `quire decommission` copies all that the dead one held, in every ledger of this
    module, and removes its cookie; every copy is there, and Java reads from the new ones.
    """
    mine = ours.write(TEXT_LINES, password=b"secret")
    theirs = java.call("lines", file=TEXT, digest="CRC32")["ledger"]
    cluster.add_bookie()
    wait_for_bookies(java, 5)
    held = ours.metadata(mine).ensemble_at(0)
    lost = cluster.bookies.pop(next(number for number, bookie in enumerate(cluster.bookies) if bookie.id in held))
    lost.kill()
    wait_for_bookies(java, 4)
    quire(["decommission", lost.id, "--metadata", cluster.metadata, "--json"], 120)
    for ledger in (mine, theirs):
        assert lost.id not in {bookie for fragment in ours.metadata(ledger).fragments for bookie in fragment.bookies}
        quire(["ledger", "check", str(ledger), "--metadata", cluster.metadata], 60)
    assert java.call("read", ledger=mine)["sha256"] == sha256(TEXT_LINES)
    assert sha256(ours.read(theirs, b"secret")) == sha256(TEXT_LINES)
    with pytest.raises(NotStarted, match=f"{lost.id} has no cookie"):
        quire(["cookie", "show", lost.id, "--metadata", cluster.metadata], 60)
