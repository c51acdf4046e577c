"""
Where a group is put together before it is written: one piece of memory, used again for each group.

Knows: that a file which is written past the page cache takes its bytes from the beginning of a page only, and in whole
sectors.
Does not know: files, where the group goes.

A large block is copied once, to memory that the processor still has at hand, and read from there for the group's sum;
the disk takes it from there.  So no page of the cache is filled with what is read again only at a start.
"""

from collections import deque
from collections.abc import Sequence

from quire.bookie.files import memory
from quire.bookie.journal.format import ALIGNMENT, GROUP, Position, group_header, padded

# SPDX-License-Identifier: Apache-2.0

FIRST_BYTES = 1 << 20  # doubled until the largest group fits
ZEROS = bytes(ALIGNMENT)


class Staging:
    """The memory of one journal.  What `group` returns is good until the next call."""

    def __init__(self) -> None:
        self._memory = memory(FIRST_BYTES)

    def group(self, blocks: Sequence[bytes | memoryview], length: int, position: Position, salt: int) -> memoryview:
        """The whole group of `length` bytes with its header and its padding."""
        space = padded(length)
        size = len(self._memory)
        if space > size:
            while size < space:
                size *= 2
            self._memory = memory(size)
        place = self._memory
        place.seek(GROUP.size)
        deque(map(place.write, blocks), maxlen=0)
        place.write(ZEROS[: space - length])
        view = memoryview(place)
        view[: GROUP.size] = group_header(length, position, salt, (view[GROUP.size : length],))
        return view[:space]
