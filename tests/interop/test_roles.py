"""
Rights beside Apache's client: on our bookies, with a role for each right and with none.  Roles alone, on bookies of
both kinds, are cells of `test_security_matrix`.
"""

from collections.abc import Iterator

import pytest

from quire.protocol.errors import UnauthorizedAccess
from quire.tools.local_cluster.cluster import quire
from tests.interop import peer
from tests.interop.ours import TEXT, Bookies, Ours, lines, sha256, wait_for_bookies
from tests.interop.secured import Secrets, code_of, in_words

PROTOCOLS = ("v2", "v3")
TEXT_LINES = lines()
SHAPE = {"ensemble": 3, "write": 3, "ack": 2}
REFUSED = UnauthorizedAccess.code
RIGHTS = """
role Maker add,read,fence
role Writer add
role Reader read
"""
SHOWN = "tls certificate"


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    return Secrets(tmp_path_factory.mktemp("roles"))


@pytest.fixture(scope="module")
def metadata(secrets: Secrets) -> Iterator[str]:
    zookeeper = peer.ZooKeeper(secrets.folder / "zookeeper")
    try:
        quire(["metadata", "init", "--metadata", zookeeper.uri()])
        yield zookeeper.uri()
    finally:
        zookeeper.stop()


@pytest.fixture(scope="module")
def bookies(metadata: str, secrets: Secrets) -> Iterator[list[str]]:
    """Three of ours, which have rights for some."""
    rights = secrets.folder / "rights"
    rights.write_text(RIGHTS)
    rights.chmod(0o640)
    keys = {**secrets.bookie("tls certificate", javas=False), "rightsFile": str(rights)}
    with Bookies(secrets.folder, metadata, 3, **keys) as found:
        yield found.ids


@pytest.fixture(scope="module")
def java(metadata: str, bookies: list[str], secrets: Secrets) -> Iterator[peer.JavaClient]:
    with peer.JavaClient(metadata, secrets.folder / "client", password="x", timeout=10) as client:
        yield client


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_javas_client_by_role(
    secrets: Secrets, metadata: str, bookies: list[str], java: peer.JavaClient, protocol: str
) -> None:
    """
    With all three rights it writes, reads and recovers; with one it does that; with a role that has none it is refused
    everything.  A refusal is -102 there, and replaces no bookie.
    """

    def words(role: str) -> dict[str, object]:
        return {"protocol": protocol, **in_words(secrets.java_client(SHOWN, role))}

    with Ours(metadata, protocol=protocol, **secrets.our_client(SHOWN, "Maker")) as ours:
        wait_for_bookies(java, len(bookies))
        made = ours.write(TEXT_LINES, password=b"x")
        assert java.call("read", ledger=made, **words("Maker"))["sha256"] == sha256(TEXT_LINES)
        written = java.call("lines", file=TEXT, **SHAPE, **words("Maker"))
        assert written["failed"] == 0
        assert sha256(ours.read(written["ledger"], b"x")) == sha256(TEXT_LINES)
        left = ours.create(password=b"x")
        ours.append(left, TEXT_LINES[:10])
        for role, may in (("Writer", (True, False)), ("Reader", (False, True)), ("Nobody", (False, False))):
            before = set(ours.ledger_ids())
            found = code_of(java, "lines", file=TEXT, to=10, **SHAPE, **words(role))
            assert found == (0 if may[0] else REFUSED)
            (ledger,) = set(ours.ledger_ids()) - before
            assert len(ours.metadata(ledger).fragments) == 1
            assert code_of(java, "read", ledger=made, **words(role)) == (0 if may[1] else REFUSED)
            assert code_of(java, "recover", ledger=left.id, **words(role)) == REFUSED
        assert java.call("recover", ledger=left.id, **words("Maker"))["last"] == 9
