"""Bisection on the entries of a ledger: the right one, in few reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.log.core.frame import Header
from quire.log.reader.one_segment import last_not_above
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def header(ordinal):
    """One that says only that."""
    return Header(0, 0, ordinal, 0, 0, 1, 1, 0, 1)


async def find(ordinals, wanted):
    """The entry, and how many were read."""
    read = []

    async def one(entry):
        read.append(entry)
        return header(ordinals[entry])

    found = await last_not_above(one, len(ordinals), wanted, lambda each: each.ordinal, 0, ordinals[-1])
    return found, len(read)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(0, 9), st.integers(0, 2500))
def test_the_last_that_is_not_above(steps, first, wanted):
    """Whatever the steps are, equal ones too; -1 where all are above."""
    ordinals = [first]
    for step in steps:
        ordinals.append(ordinals[-1] + step)

    async def story():
        found, _ = await find(ordinals, wanted)
        assert found == max((number for number, ordinal in enumerate(ordinals) if ordinal <= wanted), default=-1)

    run(story)


class Even:
    """A ledger of so many entries, each with as many records."""

    def __init__(self, entries, records):
        self.entries, self.records = entries, records

    def __len__(self):
        return self.entries

    def __getitem__(self, entry):
        return (entry % self.entries) * self.records


@pytest.mark.parametrize("wanted", [0, 1, 7, 10**5, 5 * 10**9 + 3, 10**10 - 1, 10**12])
def test_few_reads_at_many_entries(wanted):
    """At 10^8 entries at most 40, and fewer where records are spread evenly."""

    async def story():
        found, reads = await find(Even(10**8, 100), wanted)
        assert found == min(wanted // 100, 10**8 - 1)
        assert reads <= 40

    run(story)
