"""Entries without a copy: which they are, and letting go of them so that readers are told."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from quire.client.core.quorum import Quorums
from quire.metadata.store import CookieNotFound
from quire.protocol.errors import NoSuchEntry, NoSuchLedgerExists, Read, Replication
from quire.replication.checker import check_ledger
from quire.replication.core.outlook import Outlook
from quire.replication.decommission import decommission
from quire.replication.freeing.gone import gone_of
from quire.replication.freeing.run import Accept, Failed, Ranges
from quire.replication.lost_bookies import recover_bookies
from tests.client.fakes.cluster import FakeCluster
from tests.metadata import stored
from tests.replication.autorecovery.test_ledger import tried
from tests.replication.stories import bodies, closed, cookie, damage, left_open, payload
from tests.replication.test_lost_bookies import lose, naming

# SPDX-License-Identifier: Apache-2.0


def accepting(ranges: Mapping[int, Ranges]) -> Accept:
    """An operator who lets go of these, whatever is listed."""

    async def accept(_failed: Sequence[Failed]) -> Mapping[int, Ranges]:
        return ranges

    return accept


@pytest.mark.parametrize("seed", range(30))
def test_an_entry_is_gone_when_its_whole_write_set_lacks_it(seed: int) -> None:
    """Compared, entry by entry, with what each bookie really has; shapes, losses and holes are drawn."""
    rng = Random(seed)
    cluster = FakeCluster(6)
    ensemble = rng.randint(1, 5)
    write = rng.randint(1, ensemble)
    names = rng.sample(sorted(cluster.bookies), ensemble)
    last = rng.randint(0, 60)
    ledger = closed(cluster, {0: names}, last, write)
    for name in names:
        stored = cluster.bookies[name].ledgers.get(ledger)
        for entry in list(stored.entries) if stored is not None else ():
            if rng.random() < 0.3:
                del stored.entries[entry]
            elif rng.random() < 0.05:
                damage(cluster, name, ledger, entry)
    lost = rng.sample(names, rng.randint(1, ensemble))
    cluster.kill(*lost)
    quorums = Quorums.of(cluster.metadata(ledger))

    def has(name: str, entry: int) -> bool:
        body = bodies(cluster, name, ledger).get(entry, b"")
        return name not in lost and body.endswith(payload(entry))

    truly = [
        entry for entry in range(last + 1) if not any(has(names[index], entry) for index in quorums.write_set(entry))
    ]
    found = cluster.succeed(gone_of(cluster.client(), ledger, lost))
    assert [entry for first, end in found.ranges for entry in range(first, end + 1)] == truly
    assert found.entries == len(truly)
    assert all(before[1] + 1 < after[0] for before, after in zip(found.ranges, found.ranges[1:], strict=False))


def test_who_does_not_answer_may_have_it() -> None:
    """A survivor that can't be asked, or can't read, is no proof of a loss."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b1", "b2"]}, 5, write=2)
    lose(cluster, "b1")
    cluster.judge = lambda request: Read.code if request.bookie == "b2" else "pass"
    assert cluster.succeed(gone_of(cluster.client(), ledger, ["b1"])).ranges == ()
    cluster.judge = lambda request: "pass"
    cluster.kill("b2")
    assert cluster.succeed(gone_of(cluster.client(), ledger, ["b1"])).ranges == ()
    assert cluster.succeed(gone_of(cluster.client(), ledger, ["b1", "b2"])).ranges == ((0, 5),)


def test_what_is_given_up_lets_the_bookie_go_and_the_rest_is_copied() -> None:
    """
    Without a word of acceptance nothing is let go; with it all that has a copy is on others, and the cookie goes; a
    reader is told at each entry that is gone, reads all others, and the end is the same as before.
    """
    cluster = FakeCluster(6)
    names = ["b0", "b1", "b2", "b3"]
    ledger = closed(cluster, {0: names, 30: ["b0", "b2", "b3", "b4"]}, 40, write=2)
    single = closed(cluster, {0: ["b1"]}, 9, write=1)
    cookie(cluster, "b1")
    for entry in (5, 6):  # b1 and its other bookie
        for name in set(names) - {"b1"}:
            cluster.bookies[name].ledgers[ledger].entries.pop(entry, None)
    lose(cluster, "b1")
    client = cluster.client()
    error = cluster.fails(decommission(client, "b1"))
    assert isinstance(error, Replication)
    assert naming(cluster, "b1") == [ledger, single]

    gone = [cluster.succeed(gone_of(client, each, ["b1"])) for each in (ledger, single)]
    assert [each.ranges for each in gone] == [((5, 6),), ((0, 9),)]
    done = cluster.succeed(decommission(client, "b1", accept=accepting({each.ledger: each.ranges for each in gone})))
    assert done.complete
    assert (done.progress.ledgers_done, done.progress.ledgers_failed) == (2, 0)
    assert naming(cluster, "b1") == []
    with pytest.raises(CookieNotFound):
        cluster.succeed(cluster.store.read_cookie("b1"))

    reader = cluster.succeed(client.open_ledger(ledger))
    assert reader.last_entry_id == 40
    for entry in range(41):
        if entry in (5, 6):
            assert isinstance(cluster.fails(reader.read(entry, entry)), NoSuchEntry | NoSuchLedgerExists)
        else:
            assert [each.data for each in cluster.succeed(reader.read(entry, entry))] == [payload(entry)]
    reader = cluster.succeed(client.open_ledger(single))
    assert reader.last_entry_id == 9
    assert isinstance(cluster.fails(reader.read(0, 9)), NoSuchEntry | NoSuchLedgerExists)
    assert not cluster.succeed(check_ledger(client, single)).complete


def test_only_what_was_accepted_is_let_go() -> None:
    """One entry more that has no copy, and the ledger stays as it is."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    lose(cluster, "b1")
    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"], accept=accepting({ledger: ((0, 8),)})))
    assert [each.ledger for each in done.failed] == [ledger]
    assert "entry 9" in done.failed[0].reason
    assert naming(cluster, "b1") == [ledger]


@pytest.mark.parametrize("for_s", [5.0, 1e6], ids=["for a while", "for good"])
def test_what_another_process_locks_meanwhile_is_not_forgotten(for_s: float) -> None:
    """It is waited for, or it has failed; it never counts as let go."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    lose(cluster, "b1")

    async def accept(_failed: Sequence[Failed]) -> Mapping[int, Ranges]:
        stored.lock(cluster.shared, ledger)
        cluster.clock.callLater(for_s, stored.unlock, cluster.shared)
        return {ledger: ((0, 9),)}

    done = cluster.succeed(recover_bookies(cluster.client(), ["b1"], accept=accept))
    waited = for_s < 60
    assert done.complete is waited
    assert [each.ledger for each in done.failed] == ([] if waited else [ledger])
    assert (done.progress.ledgers_done, done.progress.ledgers_failed) == (1, 0 if waited else 1)
    assert naming(cluster, "b1") == ([] if waited else [ledger])


def test_an_open_ledger_whose_end_nobody_knows_is_never_let_go() -> None:
    """It could only be closed on a guess; an acceptance of entries does not change that."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: ["b1"]}, 9, write=1)
    cookie(cluster, "b1")
    lose(cluster, "b1")
    client = cluster.client()
    assert cluster.succeed(gone_of(client, ledger, ["b1"])).ranges == ()
    cluster.fails(decommission(client, "b1", accept=accepting({ledger: ((0, 9),)})))
    assert not cluster.metadata(ledger).is_closed
    assert naming(cluster, "b1") == [ledger]
    assert cluster.succeed(cluster.store.cookies()) == ["b1"], "so nobody can come under its id and say no"


def test_autorecovery_has_nothing_more_to_try() -> None:
    """
    The mark for the lost bookie stays, parked as gone: nobody has what the bookie that is named now lacks.  So does one
    that a check of copies makes.
    """
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b1"]}, 9, write=1)
    lose(cluster, "b1")
    assert tried(cluster, ledger, "b1").outlook is Outlook.GONE
    cluster.succeed(recover_bookies(cluster.client(), ["b1"], accept=accepting({ledger: ((0, 9),)})))
    (named,) = cluster.metadata(ledger).bookies()
    stored.whole(cluster.shared)
    assert tried(cluster, ledger, "b1").outlook is Outlook.GONE
    stored.whole(cluster.shared)
    assert tried(cluster, ledger, named).outlook is Outlook.GONE
    assert cluster.metadata(ledger).bookies() == {named}
