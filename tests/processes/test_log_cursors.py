"""
Consumers of a log as processes that are killed: what one had stored is not given to the next, and nothing that was not
acknowledged is passed over.
"""

from itertools import count
from random import Random

import pytest

from tests.processes.log_story import Story
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0

NAMES = (f"consumed {number}" for number in count())
RECORDS = 10_000
FRESH = Random()  # each run of the suite draws other moments, and says which


async def filled(story):
    owner = await story.logs.own(story.name)
    await owner.append_many([b"%d" % number for number in range(RECORDS)])
    await owner.close()


async def all_given(story):
    """To one that holds the cursor and acknowledges nothing."""
    cursor = await story.logs.cursor(story.name, "billing", create=False)
    found = await cursor.read(2 * RECORDS)
    await cursor.close()
    return {record.index for record in found}


def killed(story, dice, acked, stored):
    """One consumer, at some moment; what it acknowledged, and what of that was stored, grows."""
    worker = story.worker("consumer", seed=dice.random(), options={"cursor_ms": dice.choice((5, 50, 10**6))})
    worker.until("stored", dice.randrange(1, 12))
    worker.kill()
    mine = set()
    for _at, (word, *indexes) in worker.told:
        mine.update(map(int, indexes) if word == "acks" else ())
        if word == "stored":
            stored |= mine
    acked |= mine


def play(cluster, times):
    """So many consumers, one after the other."""
    seed = FRESH.randrange(1 << 30)
    print(f"seed {seed}")
    dice, acked, stored = Random(seed), set(), set()
    with Story(cluster.uri, next(NAMES), roll_records=100) as story:
        run(lambda: filled(story))
        for _ in range(times):
            killed(story, dice, acked, stored)
            given = run(lambda: all_given(story))
            assert set(range(RECORDS)) - acked <= given
            assert not given & stored
            stored = set(range(RECORDS)) - given


def test_consumers_are_killed(cluster):
    """A few."""
    play(cluster, 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_consumers_are_killed_again_and_again(cluster):
    """On one cursor."""
    for _ in range(10):
        play(cluster, 10)
