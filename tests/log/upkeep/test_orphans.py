"""Ledgers that no log names: found, left alone for a day, deleted; and what races with that."""

import json

import pytest

from quire.conf.log import LogSettings
from quire.log.store.ledgers import LogLedgers, Tags
from quire.log.upkeep import orphans
from quire.metadata.clock import time_of_day
from quire.protocol.errors import NoSuchLedger
from quire.protocol.log_errors import LogError
from tests.log.fakes.cluster import cluster, values
from tests.log.fakes.gate import Gate
from tests.log.fakes.killed import Doomed
from tests.log.publish.test_adopting import plain
from tests.log.publish.test_sink import story_of, written
from tests.log.reader.test_watching import until
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

GONE = "0123456789abcdef" * 2
YEAR_S = 365 * 24 * 3600


async def made(logs, log, component="log-segment", **more):
    """A ledger with those tags and an entry, which no log names."""
    ledgers = LogLedgers(logs.bk, b"")
    writer = await ledgers.create(LogSettings.made(), Tags(component, log, "a", "random", more))
    await writer.append(b"x")
    return writer.id


async def found(logs, *arguments, **more):
    """What a search gives: ledger -> the rest."""
    return {each.ledger: each async for each in logs.orphans(*arguments, **more)}


async def is_there(logs, ledger):
    try:
        await logs.bk.metadata(ledger)
    except NoSuchLedger:
        return False
    return True


async def used(logs):
    """A log with an owner's segments, a published and an adopted ledger, and a part that is not published."""
    info = await logs.create("a")
    await logs.adopt("a", [await plain(logs, b"adopted")])
    sink = await logs.sink("a", "facts", "run")
    await sink.commit(0, [await written(sink, 0, 0, [b"published"])])
    await written(sink, 1, 0, [b"to come"])
    owner = await logs.own("a")
    await owner.append(b"owned")
    return info.id


def test_only_what_nothing_names(tmp_path):
    """Of a log that is there and of one that is gone; ledgers of other programs are none, and nothing is changed."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            id_ = await used(logs)
            theirs = await plain(logs, b"theirs")
            odd = await made(logs, "../odd")
            assert await found(logs) == {}
            lost, of_gone = await made(logs, id_), await made(logs, GONE, "log-part")
            before = await logs.bk.ledger_ids()
            unnamed = await found(logs)
            assert sorted(unnamed) == [lost, of_gone]
            assert unnamed[lost][1:4] == (id_, "a", "log-segment")
            assert unnamed[of_gone][1:4] == (GONE, "a", "log-part")
            assert 0 <= unnamed[lost].age_s < 600
            assert await found(logs, True, really=True) == {
                ledger: each._replace(age_s=pytest.approx(each.age_s, abs=600)) for ledger, each in unnamed.items()
            }
            assert await logs.bk.ledger_ids() == before
            assert {theirs, odd} < set(before)

    run(story)


def test_they_are_deleted(tmp_path):
    """After the time of grace; fenced first; what is named stays, and nothing is left in the manifest."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            id_ = await used(logs)
            theirs = await plain(logs, b"theirs")
            lost, of_gone = await made(logs, id_), await made(logs, GONE, "log-part")
            gone = await found(logs, True, really=True, grace_s=0)
            assert {ledger: each.deleted for ledger, each in gone.items()} == {lost: True, of_gone: True}
            assert [await is_there(logs, ledger) for ledger in (lost, of_gone, theirs)] == [False, False, True]
            assert (await logs.info("a")).doomed == 0
            assert await found(logs) == {}
            assert await values(await logs.read("a"), 3) == [b"adopted", b"published", b"owned"]

    run(story)


def test_suspiciously_many(tmp_path, monkeypatch):
    """More than a fifth of all, or than ten thousand, have to be really meant."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            id_ = await used(logs)
            await made(logs, id_)
            error = await failing(story_of(found(logs, True, grace_s=0)), LogError)
            assert "1 of the 4 ledgers" in str(error)
            assert "--really" in str(error)
            monkeypatch.setattr(orphans, "MANY_PART", 0.25)
            monkeypatch.setattr(orphans, "MANY", 0)
            await failing(story_of(found(logs, True, grace_s=0)), LogError)
            monkeypatch.setattr(orphans, "MANY", 1)
            assert len(await found(logs, True, grace_s=0)) == 1

    run(story)


def test_cursors(tmp_path):
    """What a cursor names is none; what it made and does not name goes, and what a cursor made that is gone."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            id_ = (await logs.create("a")).id
            kept, doomed, left, of_gone = [
                await made(logs, id_, "log-cursor", cursor=cursor) for cursor in ("c1", "c1", "c1", "c2")
            ]
            value = (
                f'{{"quire":"cursor","format":1,"name":"n","edit":"e","ledger":{kept},"mark":0,"state":"open",'
                f'"doomed":[{{"ledger":{doomed},"why":"checkpoint","since":1}}]}}'
            )
            await logs.bk.store.records.create(f"logs/{id_[:2]}/{id_}/cursor/c1", value.encode())
            gone = await found(logs, True, really=True, grace_s=0)
            assert {ledger: each.deleted for ledger, each in gone.items()} == {left: True, of_gone: True}
            value = json.loads((await logs.bk.store.records.read(f"logs/{id_[:2]}/{id_}/cursor/c1")).value)
            assert (value["ledger"], [each["ledger"] for each in value["doomed"]]) == (kept, [doomed])

    run(story)


def test_a_log_that_can_t_be_read(tmp_path):
    """A newer quire wrote it: none of its ledgers is an orphan."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            id_ = (await logs.create("a")).id
            await made(logs, id_)
            records, path = logs.bk.store.records, f"logs/{id_[:2]}/{id_}"
            data, version = await records.read(path)
            await records.write(path, data.replace(b'"format":1', b'"format":2'), version)
            assert await found(logs, True, really=True, grace_s=0) == {}

    run(story)


@pytest.mark.parametrize("killed", [False, True])
def test_a_slow_owner(tmp_path, killed):
    """
    Its ledger is not named yet when one whose clock is a year ahead takes it for an orphan: it is not named
    then, deleted or only doomed, and the append goes to another one.
    """

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed("orphan.doomed", 1)
            finder = await world.logs(doomed.reached, lambda: time_of_day() + YEAR_S)
            if killed:
                doomed.logs = finder
            other = await world.logs()
            await other.create("a")
            logs = await world.logs()
            owner = await logs.own("a")
            edit = Gate(logs.bk.store.records, "multi")
            waiting = owner.append(b"slow")
            await edit.reached.addTimeout(60, reactor)
            (slow,) = await other.bk.ledger_ids()
            finding = story_of(found(finder, True, really=True))
            if killed:
                finding.addErrback(lambda _failure: None)
                await doomed.died.addTimeout(60, reactor)
            else:
                assert (await finding)[slow].deleted
            edit.open()
            assert (await waiting).index == 0
            assert (await other.info("a")).ledger != slow
            assert (await other.info("a")).doomed == (1 if killed else 0)
            assert await values(await other.read("a"), 1) == [b"slow"]

    run(story)


def test_an_owner_that_is_faster(tmp_path):
    """It names its ledger while that is about to be doomed: the edit meets a newer manifest, and leaves it."""

    async def story():
        async with cluster(tmp_path) as world:
            finder, other = await world.logs(), await world.logs()
            await other.create("a")
            logs = await world.logs()
            owner = await logs.own("a")
            named, doom = Gate(logs.bk.store.records, "multi"), Gate(finder.bk.store.records, "multi")
            waiting = owner.append(b"fast")
            await named.reached.addTimeout(60, reactor)
            finding = story_of(found(finder, True, really=True, grace_s=0))
            await doom.reached.addTimeout(60, reactor)
            named.open()
            assert (await waiting).index == 0
            doom.open()
            (gone,) = (await finding).values()
            assert not gone.deleted
            assert (await other.info("a")).ledger == gone.ledger
            assert await values(await other.read("a"), 1) == [b"fast"]

    run(story)


def test_an_owner_that_hears_late_of_its_ledger(tmp_path):
    """All is over before the creation is answered, and the manifest is known as it is after that: not named."""

    async def story():
        async with cluster(tmp_path) as world:
            finder, logs = await world.logs(), await world.logs()
            await finder.create("a")
            owner = await logs.own("a")
            answer = Gate(logs.bk.store, "create_ledger", after=True)
            waiting = owner.append(b"slow")
            await answer.reached.addTimeout(60, reactor)
            (gone,) = (await found(finder, True, really=True, grace_s=0)).values()
            assert gone.deleted
            heard, path = [], f"logs/{gone.log[:2]}/{gone.log}"
            newest = (await finder.bk.store.records.read(path)).version
            logs.bk.store.records.watch(path, heard.append)
            await until(lambda: heard and heard[-1].version == newest)
            answer.open()
            assert (await waiting).index == 0
            assert (await finder.info("a")).ledger != gone.ledger
            assert await values(await finder.read("a"), 1) == [b"slow"]

    run(story)


def test_a_finder_that_is_killed(tmp_path):
    """Once the orphans are doomed: a round of upkeep deletes them, and nothing that is named is missing."""

    async def story():
        async with cluster(tmp_path) as world:
            doomed = Doomed("orphan.doomed", 1)
            finder, logs = await world.logs(doomed.reached), await world.logs()
            id_ = await used(logs)
            lost = [await made(logs, id_) for _ in range(3)]
            doomed.logs = finder
            finding = story_of(found(finder, True, really=True, grace_s=0))
            finding.addErrback(lambda _failure: None)
            await doomed.died.addTimeout(60, reactor)
            assert (await logs.info("a")).doomed == 3
            assert await found(logs, True, really=True, grace_s=0) == {}
            await logs.tidy("a")
            assert (await logs.info("a")).doomed == 0
            assert not set(lost).intersection(await logs.bk.ledger_ids())
            assert [each async for each in logs.check("a")] == []
            assert await values(await logs.read("a"), 3) == [b"adopted", b"published", b"owned"]

    run(story)
