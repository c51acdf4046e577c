"""
`python -m tests.processes.mover URI LOG CLUSTER STEP`: moves a log by the directory at URI, and ends by SIGKILL at a
step.
"""

import os
import signal
import sys
from typing import Any

from quire.client.api import connect
from quire.log.clusters.logs import DirectoryLogs
from quire.log.clusters.moving import Move
from quire.tools.terminal.running import run

# SPDX-License-Identifier: Apache-2.0


def main(uri: str, log: str, cluster: str, step: str) -> None:
    """Exit status 0: it came to the end."""

    def reached(name: str) -> None:
        if name == f"move.{step}":
            os.kill(os.getpid(), signal.SIGKILL)

    async def work(reactor: Any) -> None:
        logs = DirectoryLogs(await connect(reactor, uri), reached=reached, owns_client=True)
        await Move(logs, log, cluster).run()
        await logs.close()

    run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
