"""A bookie that tries itself each minute, and the metric of it."""

import re
from collections.abc import Awaitable
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from quire.metrics.text import Metrics
from quire.protocol.errors import MetaStore
from quire.tools.daemons.sanity import EVERY_S, TRY_S, Sanity

# SPDX-License-Identifier: Apache-2.0

PASSED, READ_ONLY = {"passed": True, "readOnly": False}, {"passed": False, "readOnly": True}
FAILED = {"passed": False, "readOnly": False, "reason": "no"}


def shown(sanity: Sanity) -> set[bytes]:
    return {line for line in Metrics(sanity).text().splitlines() if re.match(rb"\w*sanity ", line, re.IGNORECASE)}


def test_each_try_shows_in_the_metric() -> None:
    """A read-only bookie is well, too; an error is a try that failed."""
    clock, answers = Clock(), [PASSED, FAILED, READ_ONLY, MetaStore("away"), PASSED]
    coming = list(answers)

    async def tried() -> dict[str, Any]:
        found = coming.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    sanity = Sanity(clock, tried)
    sanity.start()
    seen = [sanity.passed]
    for _ in answers:
        clock.advance(EVERY_S - 1)
        assert sanity.passed == seen[-1]
        clock.advance(1)
        seen.append(sanity.passed)
    assert seen == [-1, 1, 0, 1, 0, 1]
    stopped = Deferred.fromCoroutine(sanity.stop())
    assert stopped.called
    clock.advance(10 * EVERY_S)
    assert (coming, clock.getDelayedCalls()) == ([], [])


def test_a_try_that_hangs_has_failed() -> None:
    """It is given up, and the next one made a minute later; a stop ends one under way."""
    clock, begun = Clock(), list[Deferred[dict[str, Any]]]()

    def tried() -> Awaitable[dict[str, Any]]:
        begun.append(Deferred() if len(begun) != 1 else succeed(PASSED))
        return begun[-1]

    sanity = Sanity(clock, tried)
    sanity.start()
    clock.advance(EVERY_S)
    clock.advance(TRY_S)
    assert (len(begun), sanity.passed) == (1, 0)
    clock.advance(EVERY_S)
    assert (len(begun), sanity.passed) == (2, 1)
    clock.advance(EVERY_S)
    stopped = Deferred.fromCoroutine(sanity.stop())
    assert stopped.called
    assert (len(begun), clock.getDelayedCalls()) == (3, [])


@pytest.mark.parametrize("apaches", [True, False])
def test_its_names(apaches: bool) -> None:
    """Apache's beside ours, unless metricsNames leaves it out."""
    sanity = Sanity(Clock(), lambda: succeed(PASSED), apaches)
    names = {b"quire_bookie_sanity -1.0"} | ({b"bookie_SERVER_SANITY -1.0"} if apaches else set())
    assert shown(sanity) == names
