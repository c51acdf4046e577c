"""A cluster in memory: what each operation changes at once, which errors it raises, and which listeners are called."""

import pytest

from quire.metadata.memory.cluster import MemoryCluster, Registration
from quire.metadata.store import (
    LEDGER_ID_MAX,
    BookieList,
    ClusterExists,
    NoCluster,
    WrongCluster,
)
from quire.protocol.errors import (
    IncorrectParameter,
    LedgerExist,
    LedgerIdOverflow,
    MetadataVersion,
    NoSuchLedgerExistsOnMetadataServer,
)
from tests.metadata import stored
from tests.metadata.made import HERE, ledger
from tests.metadata.stored import COOKIES, VOTES, put, votes

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster("c")
    made.init()
    return made


def test_a_cluster_is_made_once_and_destroyed_by_its_id(cluster: MemoryCluster) -> None:
    """Without bookies; ledgers and nodes go with it, and no id of a ledger is given again."""
    instance = cluster.describe().instance_id
    with pytest.raises(ClusterExists, match=instance):
        cluster.init()
    assert cluster.new_ledger_id() == 0
    cluster.create_ledger(0, ledger())
    put(cluster, COOKIES, b"note")
    cluster.enlist("a:1", False, Registration(1, HERE))
    with pytest.raises(WrongCluster, match=f"{instance}, not other"):
        cluster.destroy("other")
    with pytest.raises(WrongCluster, match="a:1"):
        cluster.destroy(instance)
    cluster.end_session(1)
    cluster.destroy(instance)
    for step in (cluster.describe, cluster.new_ledger_id, cluster.progress):
        with pytest.raises(NoCluster):
            step()
    assert cluster.init() != instance
    assert (cluster.ledger_ids(-1, 9), stored.note(cluster)) == ([], b"")
    assert cluster.new_ledger_id() == 1


def test_ids_pass_over_ledgers_that_are_there(cluster: MemoryCluster) -> None:
    """What was raised is not lowered, and after the highest there is none."""
    for each in (0, 2):
        cluster.create_ledger(each, ledger())
    assert [cluster.new_ledger_id() for _ in range(2)] == [1, 3]
    cluster.raise_ledger_ids(100)
    cluster.raise_ledger_ids(50)
    assert cluster.new_ledger_id() == 100
    cluster.raise_ledger_ids(LEDGER_ID_MAX)
    assert cluster.new_ledger_id() == LEDGER_ID_MAX
    with pytest.raises(LedgerIdOverflow):
        cluster.new_ledger_id()


def test_a_ledger_changes_with_its_version_only(cluster: MemoryCluster) -> None:
    """It begins at 0 with a token; a write of another version changes nothing."""
    made = cluster.create_ledger(7, ledger())
    assert (made.version, made.value.ctoken > 0) == (0, True)
    with pytest.raises(LedgerExist):
        cluster.create_ledger(7, ledger())
    written = cluster.write_ledger(7, made.value.recovering(), 0)
    with pytest.raises(MetadataVersion, match="at version 1, not 0"):
        cluster.write_ledger(7, made.value, 0)
    with pytest.raises(IncorrectParameter):
        cluster.write_ledger(7, made.value, -1)
    assert cluster.read_ledger(7) == written == (made.value.recovering(), 1)
    with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
        cluster.write_ledger(8, made.value, 0)


def test_only_a_ledger_that_is_there_is_deleted_and_counted(cluster: MemoryCluster) -> None:
    """Pages ascend from behind the id that is given."""
    for each in (9, 1, 5):
        cluster.create_ledger(each, ledger())
    assert cluster.ledger_ids(-1, 2) == [1, 5]
    assert cluster.ledger_ids(5, 2) == [9]
    changes = cluster.changes
    for each in (5, 5, 6):
        cluster.delete_ledger(each)
    assert (cluster.deletions, cluster.changes) == (1, changes + 1)
    with pytest.raises(NoSuchLedgerExistsOnMetadataServer):
        cluster.read_ledger(5)


def test_the_end_of_a_session_takes_what_is_its_own(cluster: MemoryCluster) -> None:
    """Registrations on both lists, locks and votes; others' stay, and each listener is called."""
    seen: list[int] = []
    cluster.listeners.append(lambda: seen.append(cluster.changes))
    for bookie, read_only, session in (("a:1", False, 1), ("b:1", False, 2), ("c:1", True, 1), ("d:1", True, 2)):
        cluster.enlist(bookie, read_only, Registration(session, HERE))
    for session, locked in ((1, 7), (2, 8)):
        stored.lock(cluster, locked, session)
    for session in (1, 2):
        put(cluster, f"{VOTES}V_{session:010d}", owner=session, claim=True)
    seen.clear()
    cluster.end_session(1)
    assert cluster.bookie_list() == BookieList({"b:1": HERE}, {"d:1": HERE})
    assert cluster.bookie_list().changes == 6
    assert stored.locks(cluster) == {8: 2}
    assert votes(cluster) == [f"{VOTES}V_0000000002"]
    assert seen[-1] == cluster.changes


def test_names_and_seeds_decide_ids_and_tokens() -> None:
    """Clusters of one name and seed are alike, others are not."""

    def first(name: str, seed: int) -> tuple[str, int]:
        made = MemoryCluster(name, seed)
        return made.init(), made.create_ledger(0, ledger()).value.ctoken

    assert first("c", 1) == first("c", 1)
    assert len({first("c", 1), first("c", 2), first("d", 1)}) == 3
