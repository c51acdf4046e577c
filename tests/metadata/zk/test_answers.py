"""Answers of other threads: one by one, and many with one hop to the reactor; errors of znodes."""

from collections.abc import Callable
from typing import Any

import pytest

from quire.metadata.tree import BadVersion, NodeError, NodeExists, NoNode, NotEmpty, SessionOver
from quire.metadata.watches import REFUSED_PAUSE_S, pause_after
from quire.metadata.zk.answers import all_answered, answered
from quire.protocol.errors import MetaStore, MetaStoreRefused

# SPDX-License-Identifier: Apache-2.0


class Hops:
    """A reactor's thread that runs when the test lets it."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], object]] = []

    def callFromThread(self, work: Callable[..., object], *values: object) -> None:
        self.waiting.append(lambda: work(*values))

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()


class Call:
    """One that another thread answers."""

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: BaseException | None = None
        self.linked: list[Callable[[Any], object]] = []

    def rawlink(self, callback: Callable[[Any], object]) -> None:
        self.linked.append(callback)

    def end(self, value: Any = None, exception: BaseException | None = None) -> None:
        self.value, self.exception = value, exception
        for each in self.linked:
            each(self)


def test_an_answer_or_an_error() -> None:
    """On the reactor's thread; the second word about a call changes nothing."""
    hops, good, bad = Hops(), Call(), Call()
    one, other = answered(hops, good), answered(hops, bad)
    for _ in range(2):
        good.end(7)
        bad.end(exception=OSError("gone"))
    assert not one.called
    hops.run()
    assert one.result == 7
    errors: list[Any] = []
    other.addErrback(errors.append)
    assert errors[0].check(OSError)


def test_many_answers_share_one_hop() -> None:
    """Which comes with the last of them, values and errors alike; one that comes twice counts once."""
    hops, calls = Hops(), [Call(), Call(), Call()]
    done = all_answered(hops, calls)
    calls[0].end(1)
    calls[0].end(1)
    calls[2].end(exception=OSError("gone"))
    assert not hops.waiting
    calls[1].end(2)
    assert len(hops.waiting) == 1
    hops.run()
    assert done.called


def test_who_has_gone_is_not_answered() -> None:
    """A caller that was cancelled meanwhile."""
    hops, call = Hops(), Call()
    done = all_answered(hops, [call])
    done.addErrback(lambda _failure: None)
    done.cancel()
    call.end(1)
    hops.run()


def test_who_was_refused_waits_longer() -> None:
    """A lost connection is back soon; what a server allows changes by hand."""
    assert pause_after(MetaStore(), 0.2) == 0.2
    assert pause_after(MetaStoreRefused(), 0.2) == REFUSED_PAUSE_S


@pytest.mark.parametrize("kind", [BadVersion, NodeExists, NoNode, NotEmpty, SessionOver])
def test_an_operation_counts_as_tried_once_until_its_session_says_otherwise(kind: type[NodeError]) -> None:
    """
    A caller that does not look at the kind sees a failure of the metadata store; `retried` is set on one error only.
    """
    error = kind("/ledgers")
    assert isinstance(error, MetaStore)
    assert not error.retried
    error.retried = True
    assert not kind("/ledgers").retried
