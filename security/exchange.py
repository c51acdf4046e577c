"""
A provider of authentication, on either side of a connection: a name on the wire, and an exchange of tokens for each
connection.

Knows: the contract, and the names by which sides say that they have none.  Does not know: any provider
(`authentication` chooses one), frames.
"""

from typing import Protocol

# SPDX-License-Identifier: Apache-2.0


class NotAuthenticated(Exception):
    """The other side is not who it should be, or does not speak as it should.  The text has no secret in it."""


class Exchange(Protocol):
    """
    One connection's.  Each token that comes is a step, and a client begins with an empty one of its own; what a step
    returns is sent, also where it is empty.  No step follows `complete`.
    """

    @property
    def complete(self) -> bool:
        """The other side has proved who it is."""
        ...

    @property
    def user(self) -> str:
        """The user's name, once `complete`; a bookie has none."""
        ...

    @property
    def stands(self) -> bool:
        """True while the same proof would do now, once `complete`."""
        ...

    def step(self, token: bytes) -> bytes:
        """`NotAuthenticated` ends the connection."""
        ...


class Provider(Protocol):
    """One side's, for all its connections."""

    @property
    def name(self) -> str:
        """On the wire, the same on both sides."""
        ...

    def begin(self) -> Exchange: ...
