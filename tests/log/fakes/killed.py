"""A process that is killed when it comes to a named step."""

from twisted.internet.defer import Deferred

from quire.metadata.memory.cluster import Fault

# SPDX-License-Identifier: Apache-2.0

NEVER = Fault(before=1e6)
READS = {"get", "exists", "listing"}


def kill(logs):
    """As SIGKILL: nothing of this process takes effect any more, and its session ends; what it still reads is idle."""
    store = logs.bk.store
    store.faults = lambda name, _arguments: None if name in READS else NEVER
    store.expire_session()
    logs.bk.pool.close()


class Doomed:
    """A process that is killed when it comes to a point for the `nth` time."""

    def __init__(self, point, nth):
        self.left = nth
        self.point = point
        self.logs = None
        self.died = Deferred()

    def reached(self, name):
        if name == self.point and self.logs is not None:
            self.left -= 1
            if self.left == 0:
                kill(self.logs)
                self.died.callback(None)
