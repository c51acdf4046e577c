"""Rows that are looked up before they are asked for: the same ones that a look would find, and fewer looks."""

import random

import pytest

from quire.messages.core.queues import Placing
from quire.messages.derived import windows
from quire.messages.derived.dispatch import Dispatch
from quire.messages.derived.lookup import Lookup
from quire.messages.derived.windows import Window, Windows, look_up
from tests.messages.derived.stores import LOG, Dicts, made, more, portions, store
from tests.messages.derived.test_lookup import drawn
from tests.reactor import run
from tests.rows.fakes import DictRows

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize("seed", range(4))
def test_a_window_has_what_a_look_finds(seed):
    """From any position in it on, or nothing where it does not reach far enough."""
    chance = random.Random(seed)
    values = made(drawn(chance))
    rows = DictRows()
    Dispatch(rows, LOG, Placing()).take(portions(values))
    lookup = Lookup(rows, values[chance.randrange(150)].position)
    for topic in lookup.topics():
        for queue in lookup.queues(topic):
            bounds = lookup.bounds(topic, queue)
            assert look_up((topic, queue), bounds.next, 9, lookup) == Window(bounds, [], {})
            if bounds.first == bounds.next:
                continue
            window = look_up((topic, queue), bounds.first, 9, lookup)
            assert window.bounds == bounds
            assert list(window.entries.values()) == lookup.entries([row.offset for row in window.rows])
            for position in range(bounds.first, bounds.next):
                expected = lookup.window(topic, queue, position, 4)
                reaches = expected[0] in window.rows and (
                    len(window.rows) - window.rows.index(expected[0]) >= 4 or window.rows[-1].next == bounds.next
                )
                assert window.rows_from(position, 4) == (expected if reaches else [])
    assert look_up(("none", 0), 0, 9, lookup) is None


def test_looks_grow_where_they_go_on():
    """Four times as many rows each time, up to a maximum; elsewhere as many as are wanted."""
    values = made([("T", 0, number) for number in range(100)])
    rows = DictRows()
    Dispatch(rows, LOG, Placing()).take(portions(values))
    window = look_up(("T", 0), 10, 8, Lookup(rows, 0))
    assert [window.worth_looking(position, 8) for position in (9, 10, 11, 18, 19, 60)] == [8, 8, 32, 32, 8, 8]
    assert window.worth_looking(18, 50) == 50
    assert window._replace(rows=window.rows * 30).worth_looking(18, 8) == windows.ROWS_MAX


def test_few_queues_are_remembered(monkeypatch):
    """That which was looked up longest ago goes, and one of another version of the rows is none."""
    monkeypatch.setattr(windows, "QUEUES_MAX", 3)
    values = made([("T", number % 5, number // 5) for number in range(10)])
    rows = DictRows()
    Dispatch(rows, LOG, Placing()).take(portions(values))
    known = Windows()
    for queue in (0, 1, 2, 0, 3):
        known.remember(("T", queue), 1, look_up(("T", queue), 0, 8, Lookup(rows, 0)))
    assert [known.of(("T", queue), 1) is not None for queue in range(5)] == [True, False, True, True, False]
    assert known.of(("T", 0), 2) is None
    known.remember(("T", 0), 1, None)
    assert known.of(("T", 0), 1) is None


def test_pulls_that_go_on_look_seldom(tmp_path):
    """In 200 messages 7 looks in place of 40; what comes meanwhile is seen by the next pull."""
    records = [("T", 0, number) for number in range(210)]
    values = made(records)

    async def story():
        async with store(tmp_path, values[:200], Dicts()) as found:
            looks, look = [], found.following.look

            def counted(fn):
                looks.append(fn)
                return look(fn)

            found.following.look = counted
            position, given = 0, []
            while len(given) < 200:
                pulled = await found.reads.pull("T", 0, position, 5)
                assert (pulled.min, pulled.max) == (0, 200)
                position = pulled.next
                given += [message.raw for message in pulled.messages]
            assert given == [each.value for each in values[:200]]
            assert len(looks) <= 7
            await more(found.logs, values[200:])
            pulled = await found.reads.pull("T", 0, 200, 5, wait_s=60)
            assert pulled.messages[0].position == 200
            assert pulled.max > 200

    run(story)
