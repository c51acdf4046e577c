"""Which ledgers a log may take in, and what they hold as their metadata says."""

import pytest

from quire.log.core.edits import Published
from quire.log.publish.adopting import AT_ONCE, PlainLedgers
from quire.protocol.log_errors import PublishRefused
from tests.log.fakes.cluster import cluster
from tests.log.publish.test_adopting import plain
from tests.log.publish.test_sink import story_of
from tests.metadata.stories import failing
from tests.reactor import run

# SPDX-License-Identifier: Apache-2.0


def test_how_many():
    """1 to 1,000, none of them twice."""
    for wrong in ([], [7, 8, 7], list(range(1001))):
        with pytest.raises(ValueError, match="1 to 1000 different"):
            PlainLedgers(None, None, wrong)


def test_what_they_hold(tmp_path):
    """In the order given, over several rounds of look-ups; each entry is a record."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            first, second = await plain(logs, b"a", b"", b"ccc"), await plain(logs, b"dddd")
            many = [await plain(logs, b"x") for _ in range(AT_ONCE)]
            found = await PlainLedgers(logs.bk, logs.bk.store.records, [second, *many, first]).look_up()
            assert found[0] == Published(second, 1, 4, 1)
            assert [each.ledger for each in found[1:-1]] == many
            assert found[-1] == Published(first, 3, 4, 3)

    run(story)


@pytest.mark.parametrize(
    ("name", "value", "refused"),
    [
        ("quire/restoring", b"1", True),
        ("quire/offload", b'{"bookies": "deleted"}', True),
        ("quire/offload", b'{"bookies": "kept"}', False),
    ],
)
def test_between_bookies_and_a_copy(tmp_path, name, value, refused):
    """One that bookies are about to lose, or do not have back yet, is refused; one with a copy beside is not."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            ledger = await plain(logs, b"x")
            stored = await logs.bk.store.read_ledger(ledger)
            await logs.bk.store.write_ledger(ledger, stored.value.with_custom(name, value), stored.version)
            looking = PlainLedgers(logs.bk, logs.bk.store.records, [ledger]).look_up()
            if refused:
                assert "on its way between bookies" in str(await failing(story_of(looking), PublishRefused))
            else:
                assert [each.ledger for each in await looking] == [ledger]

    run(story)


def test_what_is_refused(tmp_path):
    """A ledger that is open, empty or gone, or was made for a log, with its name."""

    async def story():
        async with cluster(tmp_path) as world:
            logs = await world.logs()
            await logs.create("b")
            await (await logs.own("b")).append(b"x")
            wanted = {
                (await plain(logs, b"x", close=False)): "is not closed: `quire ledger recover",
                (await plain(logs)): "has no entry",
                (await logs.info("b")).ledger: "was made for the log 'b'",
                10_000: "is gone",
            }
            for wrong, text in wanted.items():
                looking = PlainLedgers(logs.bk, logs.bk.store.records, [wrong]).look_up()
                error = await failing(story_of(looking), PublishRefused)
                assert f"ledger {wrong} {text}" in str(error)

    run(story)
