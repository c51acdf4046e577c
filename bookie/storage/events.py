"""
What a storage reports, as a type: the service and the bookie hear it together, a test has its own.

Knows: the four calls.  Does not know: who hears them.

Safety: a token comes by `durable` only after the sync that covers what it stands for.
"""

from typing import Protocol

# SPDX-License-Identifier: Apache-2.0


class StorageEvents(Protocol):
    """All calls come on the reactor's thread."""

    def durable(self, tokens: list[object]) -> None:
        """The tokens of one synced group, in order."""
        ...

    def relieved(self) -> None:
        """There is room again for those that were refused for want of it, or they will be refused for good."""
        ...

    def failed(self, reason: str) -> None:
        """A fault that ends the bookie: nothing more is acknowledged."""
        ...

    def read_only(self, reason: str | None) -> None:
        """Why adds are refused from now on; None: they are taken again."""
        ...


class NoListener:
    """Hears of nothing: a storage's events until `listen`."""

    def durable(self, tokens: list[object]) -> None: ...
    def relieved(self) -> None: ...
    def failed(self, reason: str) -> None: ...
    def read_only(self, reason: str | None) -> None: ...
