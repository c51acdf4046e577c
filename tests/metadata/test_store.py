"""The contract of metadata stores: the same stories on memory, on a SQLite file, and on a real ZooKeeper."""

import uuid

import pytest
from twisted.internet.defer import DeferredList, gatherResults

from quire.metadata.ledger import LedgerState
from quire.metadata.store import (
    ANY,
    NEW,
    BookieList,
    BookieRegistered,
    ClusterExists,
    NoCluster,
    NotRegistered,
    ServiceInfo,
    WrongCluster,
)
from quire.protocol.errors import (
    IncorrectParameter,
    LedgerExist,
    MetadataVersion,
    MetaStore,
    NoSuchLedger,
    NoSuchLedgerExistsOnMetadataServer,
)
from tests.metadata.made import BOOKIES, ledger
from tests.metadata.stories import Heard, failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

HERE = ServiceInfo.of("127.0.0.1", 3181)
THERE = ServiceInfo.of("127.0.0.1", 3182, http=("127.0.0.1", 8000))
HIGHEST = (1 << 63) - 2


# -- the cluster ---------------------------------------------------------------------------------------------------


def test_cluster_is_made_once(place):
    """init returns a new UUID, all handles see it, a second init is refused with the id."""

    async def story():
        store, other = await place.open(), await place.open()
        instance = await store.init_cluster()
        assert str(uuid.UUID(instance)) == instance
        assert (await other.cluster()).instance_id == instance
        assert instance in str(await failing(other.init_cluster(), ClusterExists))

    run(story)


def test_no_cluster_names_the_next_command(place):
    """Everything that needs a cluster says how to make one, and at which address."""

    async def story():
        store = await place.open()
        for operation in (
            store.cluster(),
            store.new_ledger_id(),
            store.progress(),
            store.raise_ledger_ids(5),
            store.create_ledger(1, ledger()),
            store.ledger_ids(),
            store.bookies(),
            store.register_bookie("a:1", HERE),
            store.cookies(),
            store.write_cookie("a:1", b"", NEW),
            store.destroy_cluster("x"),
        ):
            error = await failing(operation, NoCluster)
            assert isinstance(error, MetaStore)
            assert f"quire metadata init --metadata {store.uri}" in str(error)

    run(story)


def test_destroy_asks_for_the_id_and_for_quiet(place):
    """
    A wrong id or a live bookie refuses; afterwards there is no cluster, and a new one is empty and has another id.
    """

    async def story():
        store = await place.ready()
        instance = (await store.cluster()).instance_id
        await store.create_ledger(5, ledger())
        await store.write_cookie("a:1", b"cookie", NEW)
        await store.register_bookie("a:1", HERE)
        assert instance in str(await failing(store.destroy_cluster(str(uuid.UUID(int=1))), WrongCluster))
        assert "a:1" in str(await failing(store.destroy_cluster(instance), WrongCluster))
        await store.unregister_bookie("a:1")
        await store.destroy_cluster(instance)
        await failing(store.cluster(), NoCluster)
        assert await store.init_cluster() != instance
        assert await store.ledger_ids() == []
        assert await store.cookies() == []

    run(story)


# -- ledgers -------------------------------------------------------------------------------------------------------


def test_ledger_life(place):
    """Created, read by another handle, changed by compare-and-set, deleted; a second delete is success too."""

    async def story():
        store, other = await place.ready(), await place.open()
        made = await store.create_ledger(7, ledger(custom={"app": b"\x00\xff"}))
        assert made.value.ctoken != 0
        assert await other.read_ledger(7) == made
        recovering = await other.write_ledger(7, made.value.recovering(), made.version)
        assert recovering.version > made.version
        closed = await store.write_ledger(7, recovering.value.closed(9, 90), recovering.version)
        found = await other.read_ledger(7)
        assert found == closed
        assert (found.value.state, found.value.last_entry, found.value.length) == (LedgerState.CLOSED, 9, 90)
        assert found.value.password == b"secret"
        assert found.value.custom == {"app": b"\x00\xff"}
        await store.delete_ledger(7)
        await store.delete_ledger(7)
        await failing(other.read_ledger(7), NoSuchLedgerExistsOnMetadataServer)

    run(story)


def test_ledger_errors(place):
    """Existing id -20, missing ledger -25 (a NoSuchLedger), stale version -17, and the version must be a real one."""

    async def story():
        store = await place.ready()
        made = await store.create_ledger(1, ledger())
        await failing(store.create_ledger(1, ledger()), LedgerExist)
        await failing(store.read_ledger(2), NoSuchLedger)
        await failing(store.write_ledger(2, ledger(), 0), NoSuchLedgerExistsOnMetadataServer)
        await store.write_ledger(1, made.value.recovering(), made.version)
        await failing(store.write_ledger(1, made.value.closed(0, 1), made.version), MetadataVersion)
        assert (await store.read_ledger(1)).value.state is LedgerState.IN_RECOVERY
        for version in (ANY, NEW):
            await failing(store.write_ledger(1, made.value, version), IncorrectParameter)

    run(story)


def test_the_highest_id_is_refused(place):
    """2^63-1 would make the garbage collection of Apache's bookies delete everything; 2^63-2 is an id like others."""

    async def story():
        store = await place.ready()
        for bad in (HIGHEST + 1, -1):
            for operation in (
                store.create_ledger(bad, ledger()),
                store.read_ledger(bad),
                store.write_ledger(bad, ledger(), 0),
                store.delete_ledger(bad),
            ):
                await failing(operation, IncorrectParameter)
        made = await store.create_ledger(HIGHEST, ledger())
        assert await store.read_ledger(HIGHEST) == made
        assert await store.ledger_ids() == [HIGHEST]

    run(story)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_format_is_kept(place, version):
    """A ledger stays in the format it was read in."""
    from dataclasses import replace

    plain = {"digest": None, "password": None, "ack_quorum": 3} if version == 1 else {}
    value = replace(ledger(), format_version=version, **plain)

    async def story():
        store = await place.ready()
        made = await store.create_ledger(3, value)
        assert made.value == replace(value, ctoken=made.value.ctoken)
        assert (made.value.ctoken != 0) is (version == 3)
        written = await store.write_ledger(3, made.value.closed(4, 5), made.version)
        assert (await store.read_ledger(3)) == written
        assert written.value.format_version == version

    run(story)


def test_concurrent_writers(place):
    """Of many writers with the same version exactly one wins; the others get an error, and nothing is mixed."""

    async def story():
        stores = [await place.ready(), await place.open(), await place.open()]
        made = await stores[0].create_ledger(1, ledger())
        writes = [
            stores[number % 3].write_ledger(1, made.value.with_ensemble(number + 1, BOOKIES), made.version)
            for number in range(12)
        ]
        outcomes = await DeferredList(writes, consumeErrors=True)
        won = [value for success, value in outcomes if success]
        assert len(won) == 1
        assert all(failure.check(MetadataVersion) for success, failure in outcomes if not success)
        assert (await stores[1].read_ledger(1)) == won[0]

    run(story)


def test_concurrent_increments_lose_nothing(place):
    """Read, change, compare-and-set, again on a conflict: every one of the changes is there at the end."""

    async def story():
        stores = [await place.ready(), await place.open()]
        await stores[0].create_ledger(1, ledger())

        async def add(store, times):
            done = 0
            while done < times:
                found = await store.read_ledger(1)
                longer = found.value.with_ensemble(found.value.last_fragment.first + 1, BOOKIES)
                try:
                    await store.write_ledger(1, longer, found.version)
                except MetadataVersion:
                    continue
                done += 1

        from twisted.internet.defer import Deferred

        await gatherResults([Deferred.fromCoroutine(add(store, 8)) for store in stores])
        assert len((await stores[0].read_ledger(1)).value.fragments) == 17

    run(story)


def test_ids_are_unique_under_concurrency(place):
    """Many handles asking at once never get the same id, nor one that a caller has used; deletes bring none back."""

    async def story():
        stores = [await place.ready(), await place.open(), await place.open()]
        ids = await gatherResults([store.new_ledger_id() for store in stores for _ in range(20)])
        assert len(set(ids)) == 60
        assert all(0 <= each < 1 << (31 if place.in_order else 63) for each in ids)
        await gatherResults([stores[0].create_ledger(each, ledger()) for each in ids])
        await gatherResults([stores[1].delete_ledger(each) for each in ids])
        fresh = await place.open()
        later = await gatherResults([fresh.new_ledger_id() for _ in range(5)])
        assert not set(later) & set(ids)

    run(story)


def test_new_ledgers_get_ids_of_their_own(place):
    """Of many handles at once, beside ids drawn alone and one that a caller has chosen; deletes bring none back."""

    async def story():
        stores = [await place.ready(), await place.open(), await place.open()]
        await stores[0].create_ledger(2, ledger())
        made = await gatherResults([store.create_new_ledger(ledger()) for store in stores for _ in range(30)])
        drawn = [await store.new_ledger_id() for store in stores]
        ids = [each for each, _ in made]
        assert len({2, *ids, *drawn}) == 94
        assert await stores[1].read_ledgers(ids) == [stored for _, stored in made]
        await gatherResults([stores[1].delete_ledger(each) for each in ids])
        later = await gatherResults([store.create_new_ledger(ledger()) for store in stores for _ in range(30)])
        assert not {each for each, _ in later} & {2, *ids, *drawn}

    run(story)


def test_a_long_run_of_chosen_ids_is_passed_over(place):
    """As a restore from another cluster leaves one, ahead of the ids that are given."""

    async def story():
        store = await place.ready()
        chosen = range(2, 202)
        await gatherResults([store.create_ledger(each, ledger()) for each in chosen])
        made = [(await store.create_new_ledger(ledger()))[0] for _ in range(5)]
        assert made == sorted({*made} - {*chosen})
        assert max(made) > max(chosen)

    run(story)


def test_one_creator_wins(place):
    """Several creates of one id: one ledger, and every other caller gets the error that it exists."""

    async def story():
        stores = [await place.ready(), await place.open()]
        outcomes = await DeferredList(
            [store.create_ledger(4, ledger(password=bytes([number]))) for number, store in enumerate(stores * 3)],
            consumeErrors=True,
        )
        won = [value for success, value in outcomes if success]
        assert len(won) == 1
        assert all(failure.check(LedgerExist) for success, failure in outcomes if not success)
        assert await stores[0].read_ledger(4) == won[0]

    run(story)


IDS = [0, 1, 2, 9999, 10000, 99_999_999, 100_000_000, 2**31 - 2, 2**31 - 1, 2**31, 2**32, 2**32 + 1, 10**15, HIGHEST]


def test_paging(place):
    """Pages are ascending, disjoint and complete, whatever their size; an empty page is the end, and only the end."""

    async def story():
        store = await place.ready()
        await gatherResults([store.create_ledger(each, ledger()) for each in reversed(IDS)])
        for limit in (1, 3, 5, 14, 1000):
            found, page = [], [-1]
            while page:
                page = await store.ledger_ids(page[-1], limit)
                assert len(page) == min(limit, len(IDS) - len(found))
                found += page
            assert found == IDS
        assert await store.ledger_ids(1) == IDS[2:]
        assert await store.ledger_ids(HIGHEST) == await store.ledger_ids(HIGHEST + 1) == []
        for after, limit in ((-1, 0), (-1, -5), (-2, 1), (1 << 64, 1)):
            await failing(store.ledger_ids(after, limit), IncorrectParameter)
        assert await store.ledger_ids(10_000, 2) == IDS[5:7]
        await store.delete_ledger(9999)
        assert await store.ledger_ids(limit=4) == [0, 1, 2, 10000]

    run(story)


def test_ledger_watch(place):
    """The current value first, then newer ones, None at the delete and nothing after it; versions never go back."""

    async def story():
        store, other = await place.ready(), await place.open()
        made = await store.create_ledger(1, ledger())
        heard = Heard()
        other.watch_ledger(1, heard)
        await heard.until(lambda seen: seen == made)
        written = await store.write_ledger(1, made.value.recovering(), made.version)
        await heard.until(lambda seen: seen == written)
        written = await other.write_ledger(1, written.value.closed(3, 4), written.version)
        await heard.until(lambda seen: seen == written)
        await store.delete_ledger(1)
        await heard.until(lambda seen: seen is None)
        versions = [seen.version for seen in heard.all[:-1]]
        assert versions == sorted(set(versions))
        await store.create_ledger(1, ledger())
        fresh = Heard()
        other.watch_ledger(1, fresh)
        await fresh.until(lambda seen: seen is not None)
        assert heard.all[-1] is None

    run(story)


def test_watch_of_a_missing_ledger(place):
    """None at once, and the watch is over."""

    async def story():
        store = await place.ready()
        heard = Heard()
        watch = store.watch_ledger(77, heard)
        await heard.until(lambda seen: seen is None)
        assert watch.cancelled

    run(story)


def test_cancelled_watch_is_silent(place):
    """After cancel no call comes; another watch of the same ledger goes on."""

    async def story():
        store = await place.ready()
        made = await store.create_ledger(1, ledger())
        silent, heard = Heard(), Heard()
        watch = store.watch_ledger(1, silent)
        store.watch_ledger(1, heard)
        await silent.until(lambda seen: seen == made)
        await heard.until(lambda seen: seen == made)
        watch.cancel()
        watch.cancel()
        await store.write_ledger(1, made.value.recovering(), made.version)
        await heard.until(lambda seen: seen.version == made.version + 1)
        assert silent.all == [made]

    run(story)


# -- bookies -------------------------------------------------------------------------------------------------------


def test_registration(place):
    """Other handles see it with its address; it goes when it is taken back or its handle closes."""

    async def story():
        store, other = await place.ready(), await place.open()
        assert await other.bookies() == BookieList({}, {})
        await store.register_bookie("a:1", HERE)
        await store.register_bookie("b:1", THERE)
        assert await other.bookies() == BookieList({"a:1": HERE, "b:1": THERE}, {})
        assert (await other.service_info("b:1")).http.port == 8000
        assert await other.service_info("c:1") is None
        await store.unregister_bookie("a:1")
        await failing(store.unregister_bookie("a:1"), NotRegistered)
        assert list((await other.bookies()).writable) == ["b:1"]
        await store.close()
        assert await other.bookies() == BookieList({}, {})

    run(story)


def test_bad_bookie_ids_are_refused(place):
    """An id that the reference would refuse, and the name of the read-only list."""

    async def story():
        store = await place.ready()
        for bad in ("", "a/b", "readonly", "a b"):
            await failing(store.register_bookie(bad, HERE), IncorrectParameter)

    run(story)


def test_read_only_and_back(place):
    """One call changes the mode: the bookie joins the other list and leaves the first."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.register_bookie("a:1", HERE)
        await store.register_bookie("a:1", HERE, read_only=True)
        assert await other.bookies() == BookieList({}, {"a:1": HERE})
        assert await other.service_info("a:1") == HERE
        await store.register_bookie("a:1", THERE)
        assert await other.bookies() == BookieList({"a:1": THERE}, {})
        await store.register_bookie("a:1", HERE, read_only=True)
        await store.unregister_bookie("a:1", read_only=True)
        assert await other.bookies() == BookieList({}, {})

    run(story)


def test_registering_again_renews_the_information(place):
    """The same handle may register the same id again; what it announces is then the new information."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.register_bookie("a:1", HERE)
        await store.register_bookie("a:1", THERE)
        assert await other.bookies() == BookieList({"a:1": THERE}, {})

    run(story)


def test_bookie_watch(place):
    """The current lists first, then every change, made by whichever handle."""

    async def story():
        store, other = await place.ready(), await place.open()
        heard = Heard()
        watch = other.watch_bookies(heard)
        await heard.until(lambda seen: seen == BookieList({}, {}))
        await store.register_bookie("a:1", HERE)
        await heard.until(lambda seen: seen == BookieList({"a:1": HERE}, {}))
        await other.register_bookie("b:1", THERE, read_only=True)
        await heard.until(lambda seen: seen == BookieList({"a:1": HERE}, {"b:1": THERE}))
        late = Heard()
        other.watch_bookies(late)
        await late.until(lambda seen: seen == heard.all[-1])
        watch.cancel()
        count = len(heard.all)
        await store.unregister_bookie("a:1")
        await late.until(lambda seen: seen == BookieList({}, {"b:1": THERE}))
        assert len(heard.all) == count

    run(story)


def test_an_id_has_one_owner(place):
    """A second live process waits for the first to go; when it does, the second is registered at once."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.register_bookie("a:1", HERE)
        waiting = other.register_bookie("a:1", THERE)
        heard = Heard()
        store.watch_bookies(heard)
        await heard.until(lambda seen: True)
        assert not waiting.called
        await store.close()
        await waiting
        assert await other.bookies() == BookieList({"a:1": THERE}, {})

    run(story)


def test_an_owner_that_stays_is_reported(place):
    """After the session timeout the newcomer gives up, with the id in its error; the owner keeps its place."""

    async def story():
        store, other = await place.ready(), await place.open(session_timeout_ms=500)
        await store.register_bookie("a:1", HERE)
        assert "a:1" in str(await failing(other.register_bookie("a:1", THERE), BookieRegistered))
        assert await store.bookies() == BookieList({"a:1": HERE}, {})

    run(story)


def test_expiry(place):
    """A session that expired takes its registrations with it; its owner hears of it, and can register again at once."""

    async def story():
        store, other = await place.ready(), await place.open()
        lost, heard = Heard(), Heard()
        store.on_session_lost(lost)
        await store.register_bookie("a:1", HERE)
        other.watch_bookies(heard)
        await heard.until(lambda seen: "a:1" in seen.writable)
        await place.expire(store)
        await lost.until(lambda _: True)
        await heard.until(lambda seen: seen == BookieList({}, {}))
        await store.register_bookie("a:1", HERE)
        await heard.until(lambda seen: "a:1" in seen.writable)
        assert await other.bookies() == BookieList({"a:1": HERE}, {})
        assert len(lost.all) == 1

    run(story)


@pytest.mark.parametrize("read_only", [False, True])
def test_unregistering_after_the_end_of_the_session_harms_no_successor(place, read_only):
    """
    A store that goes on behind the end of its session takes no other off a list: not at once, and not once it knows.
    """

    async def story():
        store, other = await place.ready(), await place.open()
        lost = Heard()
        store.on_session_lost(lost)
        await store.register_bookie("a:1", HERE, read_only)
        await place.expire(store)
        await other.register_bookie("a:1", THERE, read_only)
        await failing(store.unregister_bookie("a:1", read_only), NotRegistered)
        assert (await other.bookies()).find("a:1") == THERE
        await lost.until(lambda _: True)
        await failing(store.unregister_bookie("a:1", read_only), NotRegistered)
        assert (await other.bookies()).find("a:1") == THERE
        await other.unregister_bookie("a:1", read_only)

    run(story)


def test_a_registration_that_is_removed_is_reported(place):
    """
    The session lives, the registration does not: its owner hears of it and may register again; who has the id by then
    keeps it.
    """

    async def story():
        store, other = await place.ready(), await place.open(session_timeout_ms=900)
        lost, taken = Heard(), Heard()
        store.on_session_lost(lost)
        other.on_session_lost(taken)
        await store.register_bookie("a:1", HERE, read_only=True)
        await store.register_bookie("a:1", HERE)
        await other.register_bookie("b:1", HERE)
        await place.unlist("a:1")
        await lost.until(lambda _: True)
        await store.register_bookie("a:1", THERE)
        assert (await other.bookies()).find("a:1") == THERE
        await place.unlist("b:1")
        await store.register_bookie("b:1", THERE)
        await taken.until(lambda _: True)
        await failing(other.register_bookie("b:1", HERE), BookieRegistered)
        assert (await other.bookies()).find("b:1") == THERE
        await store.unregister_bookie("b:1")
        assert (len(lost.all), len(taken.all)) == (1, 1)

    run(story)


def test_known_bookies_follow_those_who_come_and_go(place):
    """What the handle has heard of becomes what there is, without being asked for; a closed handle knows none."""

    async def story():
        store, other = await place.ready(), await place.open()
        assert await other.known_bookies() == BookieList({}, {})
        heard = Heard()
        other.watch_bookies(heard)
        await store.register_bookie("a:1", HERE)
        await heard.until(lambda seen: seen == BookieList({"a:1": HERE}, {}))
        assert await other.known_bookies() == BookieList({"a:1": HERE}, {})
        await store.register_bookie("a:1", THERE)
        await store.register_bookie("b:1", HERE, read_only=True)
        await heard.until(lambda seen: seen == BookieList({"a:1": THERE}, {"b:1": HERE}))
        assert await other.known_bookies() == BookieList({"a:1": THERE}, {"b:1": HERE})
        await store.close()
        await heard.until(lambda seen: seen == BookieList({}, {}))
        assert await other.known_bookies() == BookieList({}, {})
        await other.close()
        await failing(other.known_bookies(), MetaStore)

    run(story)


def test_lists_show_whether_somebody_came_and_went_between_them(place):
    """They do as long as each change is seen; the count goes on in other handles, and an end of a session counts."""

    async def story():
        store, other = await place.ready(), await place.open()
        seen = [await other.bookies()]

        async def look():
            seen.append(await other.bookies())
            assert (await (await place.open()).bookies()).changes == seen[-1].changes
            return seen[-1].follows(seen[-2])

        def missed(follows):
            return not follows if place.counts_bookies else follows

        assert await look()
        await store.register_bookie("a:1", HERE)
        assert await look()
        await store.register_bookie("a:1", THERE)
        assert await look(), "it was there all the time"
        await store.register_bookie("a:1", HERE, read_only=True)
        await other.register_bookie("b:1", HERE)
        assert await look(), "each of them is one change of a list, or two of both"
        await other.unregister_bookie("b:1")
        assert await look()
        await other.register_bookie("b:1", HERE)
        await other.unregister_bookie("b:1")
        assert missed(await look())
        assert seen[-1] == seen[-2]
        await store.register_bookie("a:1", HERE)
        await store.register_bookie("a:1", HERE, read_only=True)
        assert missed(await look())
        third = await place.open()
        await third.register_bookie("c:1", HERE)
        await third.close()
        assert missed(await look())
        await store.close()
        assert await look()
        assert seen[-1] == BookieList({}, {})

    run(story)


def test_a_bookie_that_is_in_both_lists_accounts_for_its_own_restart(place):
    """It left and joined, as its new registration shows; who else came and went is missed all the same."""

    async def story():
        watching = await place.ready()
        heard = Heard()
        watching.watch_bookies(heard)
        first = await place.open()
        await first.register_bookie("a:1", HERE)
        before, told = await watching.bookies(), await heard.until(lambda seen: "a:1" in seen.writable)
        await first.close()
        second = await place.open()
        await second.register_bookie("a:1", HERE)
        after = await watching.bookies()
        assert after == before
        assert after.follows(before)
        if not place.counts_bookies:
            assert not after.repeats(before)
            return
        assert after.changes == before.changes + 2
        assert (await heard.until(lambda seen: seen.changes == after.changes)).follows(told)
        await second.register_bookie("a:1", THERE)
        assert (await watching.bookies()).follows(after), "a new address is no restart"
        await second.close()
        third = await place.open()
        await third.register_bookie("a:1", HERE)
        await third.register_bookie("b:1", HERE)
        await third.unregister_bookie("b:1")
        last = await watching.bookies()
        assert (last, last.changes) == (after, after.changes + 4)
        assert not last.follows(after)

    run(story)


def test_a_watch_tells_of_lists_that_are_what_they_were(place):
    """Somebody came and went: who watches hears of it, though the last that it heard is the same."""

    async def story():
        store, other = await place.ready(), await place.open()
        heard = Heard()
        other.watch_bookies(heard)
        first = await heard.until(lambda _seen: True)
        await store.register_bookie("a:1", HERE)
        await store.unregister_bookie("a:1")
        if not place.counts_bookies:
            return
        last = await heard.until(lambda seen: seen.changes == first.changes + 2)
        assert last == first
        assert not last.follows(first)

    run(story)


def test_watches_outlive_an_expiry(place):
    """The watches of a handle whose session expired go on, and miss nothing."""

    async def story():
        store, other = await place.ready(), await place.open()
        made = await other.create_ledger(1, ledger())
        lost, bookies, ledgers = Heard(), Heard(), Heard()
        store.on_session_lost(lost)
        await store.register_bookie("a:1", HERE)
        store.watch_bookies(bookies)
        store.watch_ledger(1, ledgers)
        await ledgers.until(lambda seen: seen == made)
        await place.expire(store)
        written = await other.write_ledger(1, made.value.recovering(), made.version)
        await ledgers.until(lambda seen: seen == written)
        await lost.until(lambda _: True)
        await other.register_bookie("b:1", THERE)
        await bookies.until(lambda seen: list(seen.writable) == ["b:1"])
        closed = await other.write_ledger(1, written.value.closed(1, 1), written.version)
        await ledgers.until(lambda seen: seen == closed)

    run(story)


def test_a_listener_that_fails_affects_no_other(place):
    """What a watcher raises is logged; other watchers, and its own later calls, go on."""

    async def story():
        store = await place.ready()
        made = await store.create_ledger(1, ledger())
        heard, bookies, calls = Heard(), Heard(), []

        def broken(seen):
            calls.append(seen)
            raise ZeroDivisionError("on purpose")

        store.watch_ledger(1, broken)
        store.watch_ledger(1, heard)
        store.watch_bookies(broken)
        store.watch_bookies(bookies)
        await heard.until(lambda seen: seen == made)
        written = await store.write_ledger(1, made.value.recovering(), made.version)
        await heard.until(lambda seen: seen == written)
        await store.register_bookie("a:1", HERE)
        await bookies.until(lambda seen: "a:1" in seen.writable)
        assert made in calls
        assert written in calls
        assert bookies.all[-1] in calls

    run(story)


# -- ends ----------------------------------------------------------------------------------------------------------


def test_a_closed_handle_fails_and_is_silent(place):
    """Operations fail with MetaStore, watches say nothing more, closing twice is fine, other handles go on."""

    async def story():
        store, other = await place.ready(), await place.open()
        heard, alive = Heard(), Heard()
        store.watch_bookies(heard)
        other.watch_bookies(alive)
        await heard.until(lambda _: True)
        await store.close()
        await store.close()
        for operation in (
            store.cluster(),
            store.new_ledger_id(),
            store.read_ledger(1),
            store.bookies(),
            store.register_bookie("a:1", HERE),
            store.cookies(),
        ):
            await failing(operation, MetaStore)
        count = len(heard.all)
        await other.register_bookie("a:1", HERE)
        await alive.until(lambda seen: "a:1" in seen.writable)
        assert len(heard.all) == count

    run(story)


def test_close_ends_a_waiting_registration(place):
    """A handle that waits for an id and is closed meanwhile answers with an error, not never."""

    async def story():
        store, other = await place.ready(), await place.open()
        await store.register_bookie("a:1", HERE)
        waiting = other.register_bookie("a:1", THERE)
        heard = Heard()
        store.watch_bookies(heard)
        await heard.until(lambda _: True)
        await other.close()
        await failing(waiting, MetaStore)

    run(story)


def test_deletions_are_counted_or_not_reported(place):
    """
    Where a store counts deletions, the number changes with every ledger that goes, seen by every handle, and with
    nothing else.
    """

    async def story():
        store, other = await place.open(), await place.open()
        await store.init_cluster()
        for number in (1, 2, 3):
            await store.create_ledger(number, ledger())
        before = await other.ledger_deletions()
        await store.delete_ledger(9)
        assert await other.ledger_deletions() == before
        await store.delete_ledger(2)
        after = await other.ledger_deletions()
        assert (before is None and after is None) or after == before + 1
        assert (after is None) == store.tree.has_strangers

    run(story)


def test_many_ledgers_are_read_at_once(place):
    """In the order that is asked for, with their versions; None for those that do not exist."""

    async def story():
        store = await place.open()
        await store.init_cluster()
        made = [await store.create_ledger(number, ledger()) for number in (1, 3, 1200)]
        made[1] = await store.write_ledger(3, made[1].value, made[1].version)
        ids = [3, 2, 1200, *range(4, 1100), 1, 3]
        found = await store.read_ledgers(ids)
        there = dict(zip((1, 3, 1200), made, strict=True))
        assert found == [there.get(number) for number in ids]
        assert await store.read_ledgers([]) == []
        await failing(store.read_ledgers([1, -1]), IncorrectParameter)
        await store.close()
        await failing(store.read_ledgers([1]), MetaStore)

    run(story)


def test_absent_ledgers(place):
    """Exactly those that do not exist; without a cluster there is no word about any."""

    async def story():
        store = await place.open()
        await store.init_cluster()
        for number in (1, 3):
            await store.create_ledger(number, ledger())
        assert await store.absent_ledgers([0, 1, 2, 3, HIGHEST]) == [0, 2, HIGHEST]
        assert await store.absent_ledgers([]) == []
        await store.close()
        await failing(store.absent_ledgers([1, 2]), MetaStore)

    run(story)


def test_progress_never_falls(place):
    """Each id and each change of a ledger raises it; what it says is the next id, in order, and asking draws none."""

    async def story():
        store, other = await place.ready(), await place.open()
        before = await other.progress()
        for step in range(4):
            assert before.next_ledger == (await store.progress()).next_ledger
            given = await store.new_ledger_id()
            assert given == before.next_ledger or not place.in_order
            made = await store.create_ledger(given, ledger())
            after = await other.progress()
            assert after.changes > before.changes
            assert after.next_ledger == (given + 1 if place.in_order else max(before.next_ledger, given + 1))
            if step % 2:
                written = await store.write_ledger(given, made.value.recovering(), made.version)
                assert (await other.progress()).changes > after.changes
                assert written.version > made.version
                await store.delete_ledger(given)
            before = await other.progress()

    run(story)


def test_ids_are_raised(place):
    """No id below is given after that, to any store; a lower request changes nothing.  Of several counters each is."""

    async def story():
        store, other = await place.ready(), await place.open()
        if not place.in_order:
            given = [await other.new_ledger_id() for _ in range(3)]
            seen = (await store.progress()).position
            wanted = seen.behind([300, seen.next_to(given[0]) + 2, seen[-1]])
            assert wanted.lacks(seen) == 0
            for each in (wanted, 200, seen):
                await store.raise_ledger_ids(each)
                assert (await other.progress()).position == wanted
            assert not wanted.gave(await other.new_ledger_id())
            return
        assert await other.new_ledger_id() == 0
        await store.raise_ledger_ids(5000)
        assert (await other.progress()).next_ledger == 5000
        await store.raise_ledger_ids(3)
        assert [await other.new_ledger_id(), await store.new_ledger_id()] == [5000, 5001]

    run(story)


def test_a_raise_ends_what_was_drawn_ahead(place):
    """Also where ids above were drawn already: what is made after it gets none below."""

    async def story():
        store, other = await place.ready(), await place.open()
        for _ in range(4):
            await store.create_new_ledger(ledger())
        if not place.in_order:
            await other.raise_ledger_ids((await other.progress()).next_ledger)  # asks for nothing
            return
        assert (await other.progress()).next_ledger in (4, 7)
        await other.raise_ledger_ids(6)
        made = [(await each.create_new_ledger(ledger()))[0] for each in (store, other)]
        assert min(made) >= 6
        assert len(set(made)) == 2

    run(story)
