"""State machines that show which records they were given."""

from hashlib import sha256

from twisted.internet.defer import Deferred

# SPDX-License-Identifier: Apache-2.0


class Chain:
    """
    A hash over all (index, value) in order.  `applied`: the next index; it refuses any other one, and the value "bad".
    """

    name = "chain/1"

    def __init__(self):
        self.applied = 0
        self.hash = b""
        self.roles = []
        self.loaded = None
        self._waiting = []

    def apply(self, record):
        assert record.index == self.applied, f"{record.index} instead of {self.applied}"
        if record.value == b"bad":
            raise ValueError("a value that can't be")
        self.applied += 1
        self.hash = sha256(self.hash + b"%d:" % record.index + record.value).digest()
        self._wake()
        return record.index, record.value

    def save(self):
        return [b"%d " % self.applied, self.hash]

    def load(self, data):
        number, _, self.hash = b"".join(data).partition(b" ")
        self.applied = self.loaded = int(number)

    def role(self, role, epoch):
        self.roles.append((role.value, epoch))

    def reached(self, index):
        """Fires when all below that index is applied."""
        waiting = Deferred()
        self._waiting.append((index, waiting))
        self._wake()
        return waiting

    def _wake(self):
        for index, waiting in self._waiting:
            if self.applied >= index and not waiting.called:
                waiting.callback(None)


class Made:
    """Makes machines of a kind: `last` is the newest."""

    def __init__(self, kind=Chain):
        self.kind = kind
        self.count = 0

    def __call__(self):
        self.count += 1
        self.last = self.kind()
        return self.last

    def hook(self, *asked):
        """The newest machine's, for a replica's owners."""
        return self.last.hook(*asked)
