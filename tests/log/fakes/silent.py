"""A process whose writers tell readers nothing beside their adds, as those of Apache's clients."""

from twisted.internet.defer import succeed

from quire.protocol.errors import Timeout

# SPDX-License-Identifier: Apache-2.0


def silence(logs):
    """Readers that wait hear of what is acknowledged by the next add, the timer, or the close."""
    logs.bk.pool.hint_lac = lambda *_: succeed(Timeout.code)
