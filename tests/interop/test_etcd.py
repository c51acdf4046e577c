"""
Apache's bookies and client and quire's in one cluster on etcd, in the layout of Apache's driver.

The driver is asked for by a system property, as Apache's own tests do.
"""

import pathlib
from collections.abc import Iterator

import pytest

from quire.protocol.errors import LedgerFenced
from quire.tools.local_cluster.etcd import Etcd
from tests.interop import peer
from tests.interop.ours import TEXT, Bookies, Ours, lines, sha256, wait_for_bookies
from tests.reactor import run
from tests.requirements import need

DRIVER_VERSION = "4.17.3"
DRIVER = f"org.apache.bookkeeper.metadata.drivers:metadata-stores-etcd:{DRIVER_VERSION}"
DRIVERS = [
    f"-Dbookkeeper.metadata.{kind.lower()}.drivers=org.apache.bookkeeper.metadata.etcd.EtcdMetadata{kind}Driver"
    for kind in ("Bookie", "Client")
]
TEXT_LINES = lines()


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that Apache's shell made, and Java processes that know the driver."""
    need("etcd")
    home = peer.cache() / f"etcd-{DRIVER_VERSION}"
    classes = peer.compiled(
        home, peer.HERE / "Peer.java", "dependency:copy", f"-Dartifact={DRIVER}", pom="etcd-pom.xml"
    )
    with pytest.MonkeyPatch.context() as patched, Etcd(tmp_path_factory.mktemp("etcd")) as server:
        server.wait_until_healthy()
        patched.setattr(peer, "class_path", lambda: classes)
        patched.setattr(peer, "ADD_OPENS", [*peer.ADD_OPENS, *DRIVERS])
        uri = f"etcd+apache://{server.address}/ledgers"
        peer.shell(uri, "initnewcluster")
        yield uri


def test_bookies_and_clients_of_both_share_a_cluster(metadata: str, tmp_path: pathlib.Path) -> None:
    """Each lists the bookies and ledgers of the other, reads what it wrote, and fences what it left open."""
    with (
        peer.Cluster(bookies=1, metadata=metadata, directory=str(tmp_path)) as cluster,
        Bookies(tmp_path, metadata, 2) as bookies,
        cluster.client(password="secret", timeout=30, ensemble=3, write=3, ack=3) as java,
        Ours(metadata) as ours,
    ):
        assert sorted(wait_for_bookies(java, 3)) == sorted([*bookies.ids, cluster.bookies[0].id])

        async def writable() -> list[str]:
            return list((await ours.client.store.bookies()).writable)

        assert run(writable) == sorted([*bookies.ids, cluster.bookies[0].id])
        theirs = java.call("lines", file=TEXT)["ledger"]
        mine = ours.write(TEXT_LINES, password=b"secret")
        assert sha256(ours.read(theirs, b"secret")) == sha256(TEXT_LINES)
        assert java.call("read", ledger=mine)["sha256"] == sha256(TEXT_LINES)
        left = java.call("create")["ledger"]
        java.call("append", ledger=left, file=TEXT, to=100)
        assert ours.read(left, b"secret") == TEXT_LINES[:100]
        assert java.call("append", ledger=left, count=1)["code"] == LedgerFenced.code
        writer = ours.create(password=b"secret")
        ours.append(writer, TEXT_LINES[:100])
        assert java.call("read", ledger=writer.id)["sha256"] == sha256(TEXT_LINES[:100])
        made = sorted([theirs, mine, left, writer.id])
        assert sorted(java.call("list")["ledgers"]) == made

        async def end() -> list[int]:
            await ours.client.delete_ledger(made[0])
            return await ours.client.store.ledger_ids()

        assert run(end) == made[1:]
        assert sorted(java.call("list")["ledgers"]) == made[1:]
