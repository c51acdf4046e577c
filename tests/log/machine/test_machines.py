"""What makes a replica's machine: what is wrong with it is told as such, and is no fault of a snapshot or of quire."""

import pytest
from twisted.internet.defer import Deferred, succeed

from quire.protocol.log_errors import LogError
from tests.log.fakes.cluster import cluster
from tests.log.fakes.machines import Chain
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


class Unloadable:
    def apply(self, record): ...

    def save(self): ...


class Awaited(Unloadable):
    async def apply(self, record): ...

    def load(self, data): ...


class Yielding(Unloadable):
    def load(self, data):
        yield data


def broken():
    raise OSError("no disk")


async def with_a_record(logs, snapshots):
    """The log "a" with one record, of which a replica made so many snapshots."""
    await logs.create("a")
    replica = await logs.replica("a", Chain, stand=True)
    assert await replica.leads(60)
    await replica.propose(b"x")
    for _ in range(snapshots):
        await replica.snapshot()
    await replica.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (broken, r"what makes its machine raised OSError: no disk"),
        (Unloadable, r"what makes its machine gave <.*Unloadable object at .*>, which has no load\(\)"),
        (Awaited, r"apply\(\) of its machine is an async function"),  # no record would be applied
        (Yielding, r"load\(\) of its machine is a generator function"),
    ],
)
@pytest.mark.parametrize("snapshots", [0, 1])
def test_a_machine_that_can_not_be_made(tmp_path, make, said, snapshots):
    """Ends its replica with the reason, also where there are snapshots, which were called damaged."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await with_a_record(logs, snapshots)
            with pytest.raises(LogError, match=said) as raised:
                await logs.replica("a", make)
            assert type(raised.value) is LogError

    run(story)


def test_a_machine_whose_load_would_have_to_be_awaited(tmp_path):
    """It holds nothing, so it takes no record: a snapshot of it would let the log be trimmed."""

    class Wrapped(Chain):
        def load(self, data):
            return Deferred()

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await with_a_record(logs, 1)
            with pytest.raises(LogError, match=r"load\(\) of its machine gave a Deferred, which nobody awaits"):
                await logs.replica("a", Wrapped)

    run(story)


def test_a_machine_in_place_of_what_makes_it(tmp_path):
    """Is refused before anything is changed or read."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            error = await failing(Deferred.fromCoroutine(logs.replica("a", Chain())), TypeError)
            assert "a class or a function, not <" in str(error)
            assert (await logs.info("a")).settings["needs_snapshot"] is False

    run(story)


@pytest.mark.parametrize("saved", [b"all of it", "text", succeed([b"pieces"])])  # of the last nothing was stored
def test_a_machine_that_saves_no_pieces(tmp_path, saved):
    """Who asks for a snapshot hears what `save` has to give; the replica goes on."""

    class Whole(Chain):
        def save(self):
            return saved

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("a")
            replica = await logs.replica("a", Whole, stand=True)
            assert await replica.leads(60)
            await replica.propose(b"x")
            with pytest.raises(TypeError, match=r"save\(\) gives pieces of bytes"):
                await replica.snapshot()
            await replica.propose(b"y")

    run(story)
