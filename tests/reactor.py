"""
The real reactor for tests: one background thread runs it for the whole session; a test hands it coroutines and waits.

    from tests.reactor import run, reactor
    def test_something():
        async def story(): ...
        run(story)
"""

import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from twisted.internet import reactor as _global
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import blockingCallFromThread

T = TypeVar("T")
TIMEOUT_S = 60.0  # on a busy machine, too: it ends what hangs
LOOK_S = 0.05
reactor = _global
_started = threading.Lock()
_thread: threading.Thread | None = None


def _ensure() -> None:
    global _thread  # noqa: PLW0603
    with _started:
        # or the blocking face of a test before runs it
        if _thread is None and not reactor.running:  # type: ignore[attr-defined]
            up = threading.Event()
            reactor.callWhenRunning(up.set)
            _thread = threading.Thread(
                target=reactor.run, kwargs={"installSignalHandlers": False}, name="test-reactor", daemon=True
            )
            _thread.start()
            assert up.wait(TIMEOUT_S), "the reactor did not start"


def run(story: Callable[[], Awaitable[T]], timeout: float = TIMEOUT_S) -> T:
    """
    Runs an async function (or one that returns a Deferred) on the reactor; raises what it raises, TimeoutError after
    `timeout` seconds.
    """
    _ensure()

    def begin() -> Deferred[T]:
        made = story()
        deferred = made if isinstance(made, Deferred) else Deferred.fromCoroutine(made)
        return deferred.addTimeout(timeout, reactor)

    return blockingCallFromThread(reactor, begin)


def between_looks() -> None:
    """
    Between two looks from outside at what is waited for: one look after the other would take the processor from those
    who bring it about.
    """
    run(lambda: deferLater(reactor, LOOK_S))
