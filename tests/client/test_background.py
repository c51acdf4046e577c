"""The background reactor: started once, shared, never waited for by itself; each in a process of its own where it must be."""

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from quire.client.background import reactor_thread, settle
from tests import reactor as shared


def alone(program: str) -> str:
    """Runs a program in a process of its own; its output."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def thread():
    """The tests' reactor, through the same door that programs use."""
    shared.run(lambda: succeed(None))
    return reactor_thread()


def test_a_reactor_that_runs_is_used_as_it_is():
    """No second thread is started beside the tests' own."""
    before = threading.active_count()
    assert thread().wait(lambda: succeed(7)) == 7
    assert threading.active_count() <= before + 1
    assert "quire-reactor" not in {each.name for each in threading.enumerate()}


def test_async_functions_and_deferreds_give_their_result_or_raise():
    async def story() -> str:
        await succeed(None)
        return "done"

    async def trouble() -> str:
        raise KeyError("here")

    def at_once() -> Deferred[str]:
        raise LookupError("before it began")

    assert thread().wait(story) == "done"
    with pytest.raises(KeyError, match="here"):
        thread().wait(trouble)
    with pytest.raises(LookupError, match="before"):
        thread().wait(at_once)


def test_the_reactor_never_waits_for_itself():
    """A blocking call from the reactor's thread is told what to use instead; a hang would tell nothing."""

    async def story() -> str:
        with pytest.raises(RuntimeError, match=r"quire\.client\.api"):
            reactor_thread().wait(lambda: succeed(1))
        return "checked"

    assert thread().wait(story) == "checked"


def test_calls_run_in_the_order_they_were_made():
    """Gathered appends rest on it."""
    order: list[int] = []
    for number in range(100):
        thread().call(order.append, number)
    thread().wait(lambda: succeed(None))
    assert order == list(range(100))


def test_a_story_can_be_cancelled_from_another_thread():
    never: Deferred[None] = Deferred()
    ended: Future[Failure | None] = Future()
    running = thread().begin(lambda: never, ended.set_result)
    running.cancel()
    outcome = ended.result(10)
    assert isinstance(outcome, Failure)
    assert never.called


def test_a_future_that_its_owner_cancelled_stays_cancelled():
    """An answer that comes later is for nobody, and no error."""
    future: Future[int] = Future()
    future.cancel()
    settle(future, 3)
    assert future.cancelled()


def test_an_ordinary_program_gets_one_daemon_thread_and_may_just_end():
    """Idempotent; the process ends though the reactor runs; its signal handlers are left alone."""
    out = alone(
        """
        import signal, threading
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD)
        from quire.client.background import reactor_thread
        from twisted.internet.defer import succeed
        found = {reactor_thread().wait(lambda: succeed(threading.get_ident())) for _ in range(3)}
        threads = [each for each in threading.enumerate() if each.name == "quire-reactor"]
        assert len(found) == len(threads) == 1 and threads[0].daemon
        assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD))
        print("ended")
        """
    )
    assert out == "ended\n"


def test_its_reactor_measures_by_a_clock_that_is_never_set():
    program = """
        import time
        from quire.client.background import reactor_thread
        print(reactor_thread().reactor.seconds is time.monotonic)
        """
    assert alone(program) == "True\n"


def test_many_threads_may_ask_first():
    out = alone(
        """
        import threading
        from quire.client.background import reactor_thread
        from twisted.internet.defer import succeed
        seen = []
        def ask(): seen.append(reactor_thread().wait(lambda: succeed(threading.get_ident())))
        threads = [threading.Thread(target=ask) for _ in range(8)]
        [each.start() for each in threads]; [each.join() for each in threads]
        print(len(seen), len(set(seen)))
        """
    )
    assert out == "8 1\n"


def test_a_forked_child_is_told_that_reactors_do_not_survive():
    """Its parent's reactor thread is not there, so waiting would hang."""
    out = alone(
        """
        import os
        from quire.client.background import reactor_thread
        reactor_thread()
        child = os.fork()
        if not child:
            try:
                reactor_thread()
            except RuntimeError as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        print(os.waitpid(child, 0)[1])
        """
    )
    assert out == "0\n"


def test_workers_forked_before_the_first_use_each_get_their_own():
    """Spark's daemon imports, then forks its workers."""
    out = alone(
        """
        import os, sys
        import quire.client
        assert "twisted.internet.reactor" not in sys.modules
        children = []
        for _ in range(2):
            child = os.fork()
            if not child:
                from quire.client.background import reactor_thread
                from twisted.internet.defer import succeed
                os._exit(reactor_thread().wait(lambda: succeed(0)))
            children.append(child)
        print([os.waitpid(child, 0)[1] for child in children])
        """
    )
    assert out == "[0, 0]\n"
