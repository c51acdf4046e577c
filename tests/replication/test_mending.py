"""Repair of what a scrub found: right again after any fault, and after being cut at any step and begun again."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from quire.client.api import Client
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from quire.replication.mending import Mended, Mending, mend
from tests.client.fakes.cluster import FakeBookie, FakeCluster, Request
from tests.metadata import stored
from tests.replication.scrub.scrubbing import changing, rewrite, scrub, scrubbed
from tests.replication.stories import bodies, closed, cookie, damage, is_whole, left_open, payload

# SPDX-License-Identifier: Apache-2.0

THREE = ["b0", "b1", "b2"]


async def _mended(client: Client, how: Mending) -> list[Mended]:
    found = await scrub(client)
    return [
        await mend(client, ledger, [each for each in found if each.ledger == ledger], how)
        for ledger in sorted({each.ledger for each in found})
    ]


def mended(cluster: FakeCluster, **how: Any) -> list[Mended]:
    """Scrub, then repair."""
    return cluster.succeed(_mended(cluster.client(), Mending(**how)), seconds=600)


def faulty(cluster: FakeCluster, striped_last: int = 60) -> list[int]:
    """Ledgers with one fault of each kind."""
    plain = closed(cluster, {0: THREE, 30: ["b0", "b1", "b3"]}, 60)
    striped = closed(cluster, {0: ["b0", "b1", "b2", "b3"]}, striped_last, write=3)
    damage(cluster, "b0", plain, 3)
    del cluster.bookies["b1"].ledgers[plain].entries[10]
    rewrite(cluster, "b2", plain, 15, lac=2)
    rewrite(cluster, "b0", plain, 20, payload=b"?" * len(payload(20)))
    rewrite(cluster, "b1", plain, 50, lac=99_999)
    cluster.bookies["b2"].ledgers[striped].entries.clear()
    return [plain, striped]


def test_every_kind_of_fault_is_made_good():
    """On the bookies that should have the copies; only what is wrong is copied; a dry run counts that."""
    cluster = FakeCluster(5)
    ledgers = faulty(cluster)
    expected = 5 + sum(entry % 4 in (0, 1, 2) for entry in range(61))
    before = dict(stored.Ledgers(cluster.shared))
    dry = mended(cluster, dry_run=True)
    assert sum(each.entries for each in dry) == expected
    assert scrubbed(cluster) != []
    done = mended(cluster)
    assert [each.left for each in done] == [[], []]
    assert sum(each.entries for each in done) == expected
    assert all(is_whole(cluster, cluster.client(), ledger) for ledger in ledgers)
    assert scrubbed(cluster) == []
    assert stored.Ledgers(cluster.shared) == before
    assert mended(cluster) == []


def cut(step: int) -> bool:
    """A repair that ends at its request of this number, and another; False: it had fewer."""
    cluster = FakeCluster(5)
    ledgers = faulty(cluster, striped_last=11)  # each row of a stripe is a request
    cluster.kill("b3")
    client = cluster.client()
    found = cluster.succeed(scrub(client))
    left = step

    async def story() -> None:
        for ledger in ledgers:
            await mend(client, ledger, [each for each in found if each.ledger == ledger])

    def judge(_request: Request) -> str:
        nonlocal left
        left -= 1
        if left >= 0:
            return "pass"
        work.cancel()
        return "drop"

    cluster.judge = judge
    work = Deferred.fromCoroutine(story())
    work.addErrback(lambda _cut: None)
    while not work.called:
        cluster.spin(0.05, step=0.005)
    cluster.spin(0.1, step=0.005)  # what was on its way arrives
    cluster.judge = lambda _request: "pass"
    assert [each.left for each in mended(cluster) if each.left] == [], step
    assert all(is_whole(cluster, cluster.client(), ledger) for ledger in ledgers), step
    assert scrubbed(cluster) == [], step
    return left < 0


def test_a_repair_that_is_cut_at_any_step_converges():
    """The process dies at the first request, the second, …: the next run makes good what is left."""
    steps = 0
    while cut(steps):
        steps += 1
    assert steps > 40


def test_a_bookie_that_is_gone_is_replaced():
    """As by `quire recover`: its whole share goes to another one, which the metadata names then."""
    cluster = FakeCluster(4)
    for bookie in THREE:
        cookie(cluster, bookie)
    ledger = closed(cluster, {0: THREE}, 60)
    cluster.kill("b1")
    assert [each.kind for each in cluster.succeed(scrub(cluster.client()))] == ["unreachable"]
    dry = mended(cluster, dry_run=True)
    assert (dry[0].entries, dry[0].fragments) == (61, 1)
    assert "b1" in cluster.metadata(ledger).bookies()
    assert mended(cluster)[0].fragments == 1
    assert "b1" not in cluster.metadata(ledger).bookies()
    assert is_whole(cluster, cluster.client(), ledger)


def test_a_wrong_copy_is_not_spread():
    """Where a bookie is gone and the others differ, nobody knows which is right: nothing is copied from either."""
    cluster = FakeCluster(4)
    for bookie in THREE:
        cookie(cluster, bookie)
    ledger = closed(cluster, {0: THREE}, 60)
    rewrite(cluster, "b0", ledger, 40, payload=b"?" * len(payload(40)))
    cluster.kill("b1")
    (done,) = mended(cluster)
    assert (done.entries, len(done.left)) == (0, 3)
    assert "b1" in cluster.metadata(ledger).bookies()
    cluster.restart("b1")
    assert [each.left for each in mended(cluster)] == [[]]
    assert is_whole(cluster, cluster.client(), ledger)


def test_a_majority_counts_the_copies_that_can_not_be_read():
    """Of four copies two are wrong alike, one of the right ones is away for a while: the other is not written over."""
    cluster = FakeCluster(5)
    ledger = closed(cluster, {0: ["b0", "b1", "b2", "b3"]}, 60, write=4)
    for bookie in ("b0", "b1"):
        rewrite(cluster, bookie, ledger, 40, payload=b"?" * len(payload(40)))
    cluster.kill("b3", registered=True)
    right = bodies(cluster, "b2", ledger)[40]
    (done,) = mended(cluster)
    assert bodies(cluster, "b2", ledger)[40] == right
    assert any("no content has the majority" in each for each in done.left)


def test_a_bookie_that_takes_no_copies_is_replaced():
    """It is there, but read-only: another one gets its share."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 60)
    damage(cluster, "b1", ledger, 10)
    cluster.bookies["b1"].read_only = True
    (done,) = mended(cluster)
    assert done.left == []
    assert cluster.metadata(ledger).bookies() == {"b0", "b2", "b3"}
    assert is_whole(cluster, cluster.client(), ledger)


class Apache(FakeBookie):
    """Answers with what was written over an entry until its next start, then with the entry that it had first."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.says_its_id = False
        self.first: dict[tuple[int, int], bytes] = {}

    def add(self, ledger: int, entry: int, body: bytes, key: bytes, recovery: bool) -> int:
        had = self.stored(ledger).entries.get(entry)
        if had is not None:
            self.first.setdefault((ledger, entry), had)
        return super().add(ledger, entry, body, key, recovery)

    def start_again(self) -> None:
        for (ledger, entry), body in self.first.items():
            self.ledgers[ledger].entries[entry] = body


def with_apache(bookies: int, *names: str) -> FakeCluster:
    """A cluster in which these are Apache's."""
    cluster = FakeCluster(bookies)
    for name in names:
        cluster.bookies[name] = Apache(name)
    return cluster


def start_again(cluster: FakeCluster) -> None:
    for bookie in cluster.bookies.values():
        if isinstance(bookie, Apache):
            bookie.start_again()


@pytest.mark.parametrize("apache", [THREE, ["b0"], ["b0", "b1"], ["b0", "b1", "b2", "b3", "b4", "b5"]])
def test_a_wrong_copy_that_its_bookie_would_have_again_is_moved_to_another(apache):
    """Each kind of wrong copy, on bookies that keep what they had first: all is right, and is so after their start."""
    cluster = with_apache(6, *apache)
    ledger = closed(cluster, {0: THREE}, 60)
    damage(cluster, "b0", ledger, 3)
    rewrite(cluster, "b0", ledger, 20, payload=b"?" * len(payload(20)))
    rewrite(cluster, "b1", ledger, 50, lac=99_999)
    rewrite(cluster, "b2", ledger, 15, lac=2)
    (dry,) = mended(cluster, dry_run=True)
    assert dry.entries == sum(61 if name in apache else wrong for name, wrong in (("b0", 2), ("b1", 1), ("b2", 1)))
    (done,) = mended(cluster)
    assert (done.left, done.fragments) == ([], 1)
    assert not cluster.metadata(ledger).bookies() & set(apache) & set(THREE)
    start_again(cluster)
    assert is_whole(cluster, cluster.client(), ledger)
    assert scrubbed(cluster) == []


def test_a_missing_copy_stays_where_it_belongs_on_any_bookie():
    """Those who keep what they had first had nothing."""
    cluster = with_apache(4, *THREE)
    ledger = closed(cluster, {0: THREE}, 60)
    del cluster.bookies["b1"].ledgers[ledger].entries[10]
    (done,) = mended(cluster)
    assert (done.left, done.entries) == ([], 1)
    assert cluster.metadata(ledger).bookies() == set(THREE)
    start_again(cluster)
    assert scrubbed(cluster) == []


def test_without_another_bookie_a_wrong_copy_is_left():
    """It is not written over, for that would not last; other bookies' copies are made good."""
    cluster = with_apache(3, "b1")
    ledger = closed(cluster, {0: THREE}, 60)
    damage(cluster, "b1", ledger, 3)
    damage(cluster, "b2", ledger, 4)
    (done,) = mended(cluster)
    assert (done.entries, len(done.left)) == (1, 1)
    assert scrubbed(cluster) == [("damaged", "b1", 3, 3, 1)]
    cluster.grow()
    assert [each.left for each in mended(cluster)] == [[]]
    assert is_whole(cluster, cluster.client(), ledger)


@pytest.mark.parametrize("kind", ["read-only", "Apache's"])
def test_a_move_copies_no_entry_that_another_bookie_has_wrong(kind):
    """Two bookies are left for others; what is wrong on the one, its digest holding, is not copied for the other."""
    cluster = with_apache(5, *(["b0", "b1"] if kind == "Apache's" else []))
    ledger = closed(cluster, {0: THREE}, 60)
    rewrite(cluster, "b0", ledger, 40, payload=b"?" * len(payload(40)))
    rewrite(cluster, "b1", ledger, 41, payload=b"?" * len(payload(41)))
    for name in ("b0", "b1"):
        cluster.bookies[name].read_only = kind == "read-only"
    (done,) = mended(cluster)
    assert done.left == []
    assert cluster.metadata(ledger).bookies() == {"b2", "b3", "b4"}
    assert is_whole(cluster, cluster.client(), ledger)


def test_a_share_of_a_bookie_that_is_gone_is_not_copied_from_a_wrong_copy():
    """One that is left, for the bookie to which it was to be moved did not take it."""
    cluster = with_apache(4, "b0")
    for bookie in THREE:
        cookie(cluster, bookie)
    ledger = closed(cluster, {0: THREE}, 60)
    rewrite(cluster, "b0", ledger, 40, lac=99_999)
    cluster.kill("b1")
    refusals = iter([-12])
    cluster.judge = lambda request: next(refusals, "pass") if request.op == "recovery add" else "pass"
    (done,) = mended(cluster)
    assert (done.fragments, len(done.left)) == (1, 1)
    assert cluster.metadata(ledger).bookies() == {"b0", "b2", "b3"}
    assert bodies(cluster, "b3", ledger) == bodies(cluster, "b2", ledger)


def test_copies_that_nobody_can_decide_keep_a_share_where_it_is():
    """A move would make a majority of one of them."""
    cluster = with_apache(4, "b0")
    ledger = closed(cluster, {0: ["b0", "b1"]}, 10, write=2)
    rewrite(cluster, "b0", ledger, 4, payload=b"?")
    damage(cluster, "b0", ledger, 7)
    (done,) = mended(cluster)
    assert any("while other copies differ" in each for each in done.left)
    assert cluster.metadata(ledger).bookies() == {"b0", "b1"}


def test_a_wrong_ensemble_is_filled_from_where_the_entries_are():
    """Even where none of the bookies that it names has them."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: ["b0", "b1"]}, 30, write=1)
    stored = cluster.succeed(cluster.store.read_ledger(ledger))
    wrong = stored.value.replace_bookies(0, ("b0", "b3"))
    cluster.succeed(cluster.store.write_ledger(ledger, wrong, stored.version))
    assert [row[:2] for row in scrubbed(cluster)] == [("misplaced", "b3")]
    assert [each.left for each in mended(cluster)] == [[]]
    assert is_whole(cluster, cluster.client(), ledger)


@pytest.mark.parametrize("fence", [False, True])
def test_an_open_ledger_is_left_to_its_writer(fence):
    """It is closed only when that is asked for, and its last add confirmed stood still."""
    cluster = FakeCluster(4)
    for bookie in THREE:
        cookie(cluster, bookie)
    ledger = left_open(cluster, {0: THREE}, 20)
    cluster.kill("b1")
    (done,) = mended(cluster, fence=fence)
    assert cluster.metadata(ledger).is_closed is fence
    assert bool(done.left) is not fence
    assert scrubbed(cluster) == ([] if fence else [("unreachable", "b1", 0, 19, 20)])


def test_a_writer_that_goes_on_is_not_fenced():
    """Its last add confirmed moved while it was watched."""
    cluster = FakeCluster(4)
    cookie(cluster, "b1")
    ledger = left_open(cluster, {0: THREE}, 20)
    cluster.kill("b1")
    body = payload(21)
    cluster.clock.callLater(5, lambda: cluster.put(ledger, 21, body, 20, 1000, "b0", "b2"))
    (done,) = mended(cluster, fence=True)
    assert "is being written" in done.left[0]
    assert not cluster.metadata(ledger).is_closed


@pytest.mark.parametrize("fence", [False, True])
def test_a_bookie_that_takes_no_copies_does_not_cost_its_writer_the_ledger(fence):
    """It is there, so nothing is closed because of it; its share of what is settled moves at once."""
    cluster = FakeCluster(5)
    ledger = left_open(cluster, {0: THREE, 30: ["b0", "b1", "b3"]}, 40)
    damage(cluster, "b1", ledger, 10)
    cluster.bookies["b1"].read_only = True
    (done,) = mended(cluster, fence=fence)
    assert not cluster.metadata(ledger).is_closed
    assert "once its writer has closed it" in done.left[0]
    settled, written = cluster.metadata(ledger).fragments
    assert "b1" not in settled.bookies
    assert "b1" in written.bookies
    cluster.succeed(cluster.client().recover_ledger(ledger))
    assert [each.left for each in mended(cluster, fence=fence)] == []
    assert is_whole(cluster, cluster.client(), ledger)


def test_what_nobody_can_decide_is_left():
    """Two copies that differ, an entry that is lost, a bookie that is registered and does not answer."""
    cluster = FakeCluster(4)
    differing = closed(cluster, {0: ["b0", "b1"]}, 10, write=2)
    rewrite(cluster, "b0", differing, 4, payload=b"?")
    lost = closed(cluster, {0: ["b0", "b1"]}, 10, write=2)
    for bookie in ("b0", "b1"):
        del cluster.bookies[bookie].ledgers[lost].entries[7]
    silent = closed(cluster, {0: ["b0", "b2"]}, 10, write=2)
    cluster.kill("b2", registered=True)
    done = {each.ledger: each for each in mended(cluster)}
    assert "no content has the majority" in done[differing].left[0]
    assert "no survivor has entry 7" in done[lost].left[0]
    assert "no answer" in done[silent].left[0]
    assert sum(each.entries for each in done.values()) == 0


def test_a_store_that_is_away_is_no_ledgers_fault():
    """It is raised: whoever mends many ledgers would have to wait for each."""
    cluster = FakeCluster(5)
    (ledger, _striped) = faulty(cluster)
    client = cluster.client()
    found = [each for each in cluster.succeed(scrub(client)) if each.ledger == ledger]
    cluster.store_fault = lambda _name, _arguments: Fault(error=MetaStore("the store is away"))
    assert isinstance(cluster.fails(mend(client, ledger, found)), MetaStore)


def test_a_ledger_that_another_process_repairs_is_left():
    """Its lock is held; once it is given back the ledger is mended."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 30)
    damage(cluster, "b1", ledger, 4)
    lock = cluster.succeed(cluster.store.repairs.lock(ledger))
    (done,) = mended(cluster)
    assert "another process repairs it" in done.left[0]
    cluster.succeed(cluster.store.repairs.release(lock))
    assert [each.left for each in mended(cluster)] == [[]]
    assert is_whole(cluster, cluster.client(), ledger)


@pytest.mark.parametrize("looks", [0, 1])
def test_a_ledger_that_changes_all_the_time_is_left_to_the_next_run(looks):
    """From the beginning, or once a copy was refused: what was not looked at is not good."""
    cluster = FakeCluster(4)
    ledger = closed(cluster, {0: THREE}, 30)
    del cluster.bookies["b1"].ledgers[ledger].entries[4]
    found = cluster.succeed(scrub(cluster.client()))

    def judge(request: Request) -> str | int:
        if request.op == "recovery add":
            changing(cluster, ledger)
            return -12
        return "pass"

    if looks:
        cluster.judge = judge
    else:
        changing(cluster, ledger)
    done = cluster.succeed(mend(cluster.client(), ledger, found))
    assert (done.entries, len(done.left)) == (0, 1)
    assert "its metadata changed all the time" in done.left[0]
    cluster.judge = lambda _request: "pass"
    assert cluster.succeed(mend(cluster.client(), ledger, found)).left == []
    assert scrubbed(cluster) == []
