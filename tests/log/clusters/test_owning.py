"""An owner whose log moves, and that can't go on there: it says so, and ends."""

from twisted.internet.defer import Deferred

from quire.log.clusters.moving import Move
from quire.log.core.manifest import Manifest
from quire.protocol.log_errors import LogError, NotOwner
from tests.log.clusters.test_moving import content, filled, numbers
from tests.log.clusters.two_clusters import played
from tests.metadata.stories import failing

# SPDX-License-Identifier: Apache-2.0


class Road:
    """
    To the cluster `there`, for the logs of one process: it is open once `open` is called, or leads to an error.  `met`
    fires when somebody waits for it.
    """

    def __init__(self):
        self.waiting, self.is_open, self.error, self.met = [], False, None, Deferred()

    async def logs(self, two, **options):
        logs = await two.logs(**options)
        in_cluster = logs.in_cluster

        async def slow(uri):
            if uri == two.there.uri:
                if not self.is_open:
                    self.waiting.append(waiting := Deferred())
                    if not self.met.called:
                        self.met.callback(None)
                    await waiting
                if self.error is not None:
                    raise self.error
            return await in_cluster(uri)

        logs.in_cluster = slow
        return logs

    def open(self, error=None):
        self.is_open, self.error = True, error
        for each in self.waiting:
            each.callback(None)


def test_another_owner_is_faster_there(tmp_path):
    """It does not queue behind that one without end: its appends fail, and it can be closed."""

    async def story(two):
        road = Road()
        logs = await road.logs(two, takeover_ms=300)
        owner = await filled(logs, 20)
        await Move(await two.logs(), "orders", "there").run()
        append = owner.append(b"20")
        other = await (await two.there.logs()).own("orders")
        road.open()
        await failing(append, NotOwner)
        assert owner.lost
        await owner.close()
        await other.append(b"20")
        await other.close()
        assert await content(await two.logs(), 21) == numbers(21)

    played(tmp_path, story)


def test_a_cluster_that_can_not_be_opened(tmp_path):
    """Of its URI nothing can be made: what waits fails, so does what comes, and the handle can be closed."""

    async def story(two):
        road = Road()
        logs = await road.logs(two)
        lost = Deferred()
        owner = await filled(logs, 20)
        owner.on_lost = lambda: lost.callback(None)
        await Move(await two.logs(), "orders", "there").run()
        append = owner.append(b"20")
        road.open(ValueError("no such store"))
        error = await failing(append, LogError)
        assert "no such store" in str(error)
        await failing(owner.append(b"20"), LogError)
        await lost
        await owner.close()

    played(tmp_path, story)


def test_it_is_closed_with_nothing_to_send(tmp_path):
    """It then does not become the owner there."""

    async def story(two):
        road = Road()
        logs = await road.logs(two)
        owner = await filled(logs, 20)
        await Move(await two.logs(), "orders", "there").run()
        plain = await two.there.logs()
        epoch = Manifest.decode(await plain.manifest("orders")).epoch
        closing = owner.close()
        road.open()
        await closing
        assert Manifest.decode(await plain.manifest("orders")).epoch == epoch
        assert await content(plain) == numbers(20)

    played(tmp_path, story)
