"""Votes and settings of auditors in ZooKeeper: the znodes and bytes of Apache BookKeeper 4.17, and lost answers."""

import pytest
from twisted.internet.threads import deferToThread

from quire.metadata.auditing import Election, Periodic
from tests.metadata.stories import Heard, at_last
from tests.metadata.zk.znodes import root_of, tree
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

OPEN = ["world:anyone:31"]


def test_the_tree_is_apache_s(zookeeper_place, raw):
    """Every znode with its bytes, its kind, its version and its ACL; who is elected says so above the votes."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication"

    async def story():
        store, other = await zookeeper_place.ready(), await zookeeper_place.open()
        heard = Heard()
        store.auditing.watch_election(heard)
        assert await store.auditing.vote("bk1:3181") == 0
        assert await other.auditing.vote("bk2:3181") == 1
        await heard.until(lambda seen: seen == Election((0, 1), "bk1:3181"))
        await store.auditing.set_delay(30)
        await store.auditing.set_delay(0)
        for check in Periodic:
            await store.auditing.set_checked(check, 1_700_000_000_000)
        time = bytes.fromhex("0880d095ffbc31")
        found = await deferToThread(tree, raw, root)
        assert {path.removeprefix(root): each for path, each in found.items()} == {
            "": (b"", False, 0, OPEN),
            "/auditorelection": (b'bookieId: "bk1:3181"\n', False, 1, OPEN),
            "/auditorelection/V_0000000000": (b'bookieId: "bk1:3181"\n', True, 0, OPEN),
            "/auditorelection/V_0000000001": (b'bookieId: "bk2:3181"\n', True, 0, OPEN),
            "/lostBookieRecoveryDelay": (b"0", False, 1, OPEN),
            "/checkallledgersctime": (time, False, 0, OPEN),
            "/placementpolicycheckctime": (time, False, 0, OPEN),
            "/replicascheckctime": (time, False, 0, OPEN),
        }

    run(story)


def test_votes_are_counted_by_number(zookeeper_place, raw):
    """Not by text; what is no vote does not count, and a vote that can't be read has won without a name."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication/auditorelection"

    async def story():
        store = await zookeeper_place.ready()
        await deferToThread(raw.create, f"{root}/V_99999999999", b'bookieId: "b:1"\n', makepath=True)
        await deferToThread(raw.create, f"{root}/V_9999999999", b'bookieId: "a:1"\n')
        await deferToThread(raw.create, f"{root}/other", b"")
        assert await store.auditing.election() == Election((9999999999, 99999999999), "a:1")
        await deferToThread(raw.set, f"{root}/V_9999999999", b"?")
        assert await store.auditing.election() == Election((9999999999, 99999999999), "")

    run(story)


@pytest.mark.parametrize("number", range(1, 8))
def test_a_lost_answer_leaves_one_vote(lossy, zookeeper_place, number):
    """Any one answer is lost: there is one vote of the session, with the number that was given, and then none."""
    proxy, store = lossy

    async def story():
        direct = await zookeeper_place.ready()
        proxy.lose_answer(number)
        vote = await at_last(lambda: store.auditing.vote("a:1"))
        assert await direct.auditing.election() == Election((vote,), "a:1")
        await at_last(store.auditing.withdraw)
        assert await direct.auditing.election() == Election()
        await at_last(lambda: store.auditing.set_delay(5, unless_set=True))
        assert await direct.auditing.delay() == 5
        assert proxy.lost == 1

    run(story)


def test_settings_that_can_not_be_read(zookeeper_place, raw):
    """A delay that is no number, a time that is none: as if nobody had said anything, until somebody does."""
    root = f"{root_of(zookeeper_place.uri)}/underreplication"

    async def story():
        store = await zookeeper_place.ready()
        for name, data in (("lostBookieRecoveryDelay", b"soon"), ("checkallledgersctime", b"text\n")):
            await deferToThread(raw.create, f"{root}/{name}", data, makepath=True)
        assert await store.auditing.delay() is None
        await deferToThread(raw.set, f"{root}/lostBookieRecoveryDelay", b"9" * 5000)
        assert await store.auditing.delay() is None
        assert await store.auditing.checked(Periodic.COPIES) is None
        await store.auditing.set_delay(5)
        await store.auditing.set_checked(Periodic.COPIES, 7)
        assert await store.auditing.delay() == 5
        assert await store.auditing.checked(Periodic.COPIES) == 7

    run(story)
