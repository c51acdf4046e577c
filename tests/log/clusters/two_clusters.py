"""Two clusters in this process, and a directory of both beside the first one."""

from contextlib import asynccontextmanager

from quire.client.api import connect as connect_client
from quire.conf.client import ClientOptions
from quire.conf.log import LogOptions
from quire.log.clusters.logs import DirectoryLogs
from quire.metadata.memory.cluster import Fault
from quire.protocol.errors import MetaStore
from tests.log.fakes.cluster import cluster
from tests.log.fakes.killed import READS
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

GONE = Fault(error=MetaStore("this process was killed"))


class Two:
    """`logs()` is a process's worth of logs of the directory; `here` and `there` are the clusters."""

    def __init__(self, here, there, stack) -> None:
        self.here = here
        self.there = there
        self._stack = stack

    async def logs(self, reached=lambda _name: None, **options) -> DirectoryLogs:
        client = await connect_client(reactor, self.here.uri, ClientOptions(placement="random"))
        made = DirectoryLogs(client, LogOptions(poll_ms=50, **options), reached=reached, owns_client=True)
        self._stack.append(made)
        return made


@asynccontextmanager
async def two_clusters(tmp_path, bookies=3):
    opened = []
    async with cluster(tmp_path / "here", bookies) as here, cluster(tmp_path / "there", bookies) as there:
        two = Two(here, there, opened)
        try:
            logs = await two.logs()
            await logs.directory.add("here", here.uri)
            await logs.directory.add("there", there.uri)
            yield two
        finally:
            for each in opened:
                await each.close()


def played(tmp_path, story):
    """`story(two)`."""

    async def whole():
        async with two_clusters(tmp_path) as two:
            await story(two)

    run(whole)


def kill(logs: DirectoryLogs) -> None:
    """As SIGKILL: nothing of this process takes effect any more in any cluster, and its sessions end."""
    for each in [logs, *logs.opened]:
        store = each.bk.store
        store.faults = lambda name, _arguments: None if name in READS else GONE
        store.expire_session()
        each.bk.pool.close()
