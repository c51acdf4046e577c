"""An import in a process of its own, which a test watches: `python -m … SOURCE DIRECTORY` prints records and state."""

import pathlib
import sys

from tests.log.fakes.cluster import cluster
from tests.messages.rocketmq.imports import imported
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


async def story():
    async with cluster(pathlib.Path(sys.argv[2])) as world:
        plan, descriptor = await imported(await world.logs(), sys.argv[1])
        print(plan.records, descriptor.state)


if __name__ == "__main__":
    run(story)
