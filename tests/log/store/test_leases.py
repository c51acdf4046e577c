"""How a lease is ended by another one than its owner: revoked, waited out, replaced in one step with the manifest."""

from contextlib import asynccontextmanager

import pytest
from twisted.internet.defer import Deferred

from quire.log.core.machine.lease import Lease
from quire.log.core.upkeep_edits import Hold
from quire.log.store.editing import LogRecords
from quire.log.store.leases import Leases
from quire.log.store.paths import log_path
from quire.metadata.records import RecordChanged
from quire.metadata.uri import boottime
from quire.protocol.log_errors import NoSuchLog
from tests.log.fakes.cluster import cluster
from tests.metadata.stories import failing
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

MS = 200


def records_of(logs, info):
    """A handle of its own."""
    return LogRecords(logs.bk.store.records, reactor, logs.bk.random, lambda: 1700.0, info.id, "a")


@asynccontextmanager
async def leases(tmp_path, state):
    """Of a log that nobody owns: two handles, and the points that were reached."""
    async with cluster(tmp_path) as world:
        logs, points = await world.logs(), []
        info = await logs.create("a", publish=False, lease_ms=MS)
        found = [Leases(records_of(logs, info), reactor, boottime, points.append) for _ in range(2)]
        await found[0].write(Lease(0, "t", state, MS, "e0"), (await found[0].read()).version)
        yield (*found, points)


@pytest.mark.parametrize("state", ["off", "free"])
def test_nothing_is_waited_for_where_nobody_may_answer(tmp_path, state):
    """The value stays as it is until the edit."""

    async def story():
        async with leases(tmp_path, state) as (one, _other, points):
            before = await one.read()
            assert await one.ended() == before
            assert (await one.read(), points) == (before, [])

    run(story)


def test_a_held_one_is_revoked_and_waited_out(tmp_path):
    """For a little longer than it lasts, from when the value was first seen; renewals fail from then on."""

    async def story():
        async with leases(tmp_path, "held") as (one, other, points):
            held = await other.read()
            begun = boottime()
            ended = await one.ended()
            assert boottime() - begun >= 1.01 * MS / 1000
            assert (ended.lease.state, ended.lease.ms, points) == ("revoked", MS, ["claim.revoked", "claim.waited"])
            await failing(Deferred.fromCoroutine(other.write(held.lease, held.version)), RecordChanged)

    run(story)


def test_who_looked_before_waits_for_the_rest_only(tmp_path):
    """A candidate that has seen the present value for long enough need not wait at all."""

    async def story():
        now = [100.0]
        async with leases(tmp_path, "held") as (one, _other, points):
            one.boottime = lambda: now[0]
            await one.read()
            now[0] += 1.01 * MS / 1000
            assert (await one.ended()).lease.state == "revoked"
            assert points == ["claim.revoked", "claim.waited"]

    run(story)


def test_a_lease_that_another_one_revoked_is_waited_for_too(tmp_path):
    """From its own first sight: who revoked it may have died."""

    async def story():
        async with leases(tmp_path, "revoked") as (one, _other, points):
            begun = boottime()
            assert (await one.ended()).lease.state == "revoked"
            assert boottime() - begun >= 1.01 * MS / 1000
            assert points == ["claim.waited"]

    run(story)


def test_the_value_is_replaced_with_the_manifest_or_all_begins_anew(tmp_path):
    """A lease that changed between the wait and the edit makes the edit fail, and it is waited for again."""

    async def story():
        async with leases(tmp_path, "revoked") as (one, other, points):
            waited = one.ended

            async def ended():
                found = await waited()
                if points.count("claim.waited") == 1:  # its owner holds it again
                    await other.write(Lease(0, "t", "held", MS, "e1"), found.version)
                return found

            one.ended = ended
            done = await one.edit(Hold(), one.log.edit)
            assert points == ["claim.waited", "claim.revoked", "claim.waited"]
            lease, _version = await one.read()
            assert (lease.state, lease.edit, lease.token) == ("free", done.manifest.edit, "")

    run(story)


def test_a_log_that_is_gone(tmp_path):
    """Its lease is, too."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            info = await logs.create("a")
            found = Leases(records_of(logs, info), reactor, boottime, lambda _name: None)
            await logs.bk.store.records.delete(f"{log_path(info.id)}/lease", 0)
            await failing(Deferred.fromCoroutine(found.read()), NoSuchLog)

    run(story)
