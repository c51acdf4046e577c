"""State machines that show which records they were given."""

from hashlib import sha256

# SPDX-License-Identifier: Apache-2.0


class Chain:
    """A hash over all (index, value) in order.  `applied`: the next index; it refuses any other one."""

    name = "chain/1"

    def __init__(self):
        self.applied = 0
        self.hash = b""
        self.roles = []

    def apply(self, record):
        assert record.index == self.applied, f"{record.index} instead of {self.applied}"
        self.applied += 1
        self.hash = sha256(self.hash + b"%d:" % record.index + record.value).digest()
        return record.index, record.value

    def save(self):
        return [b"%d " % self.applied, self.hash]

    def load(self, data):
        number, _, self.hash = b"".join(data).partition(b" ")
        self.applied = int(number)

    def role(self, role, epoch):
        self.roles.append((role, epoch))
