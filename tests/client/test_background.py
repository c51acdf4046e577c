"""
The background reactor: started once, shared, never waited for from its own thread; each in a process of its own where
it must be.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from quire.client.background import Background
from quire.client.threads import reactor_thread
from tests import reactor as shared
from tests.alone import alone


def thread():
    """The tests' reactor, through the same door that programs use."""
    shared.run(lambda: succeed(None))
    return reactor_thread()


def test_a_reactor_that_runs_is_used_as_it_is():
    """No second thread is started beside the tests' own."""
    assert thread().wait(lambda: succeed(7)) == 7
    before = set(threading.enumerate())
    assert reactor_thread().wait(lambda: succeed(7)) == 7
    assert set(threading.enumerate()) == before


def test_calls_run_in_the_order_they_were_made():
    """Gathered appends rest on it."""
    order: list[int] = []
    for number in range(100):
        thread().call(order.append, number)
    thread().wait(lambda: succeed(None))
    assert order == list(range(100))


def test_a_story_can_be_cancelled_from_another_thread():
    """Its Deferred is cancelled and the result is a failure."""
    never: Deferred[None] = Deferred()
    ended: Future[Failure | None] = Future()
    running = thread().begin(lambda: never, ended.set_result)
    running.cancel()
    outcome = ended.result(60)
    assert isinstance(outcome, Failure)
    assert never.called


class Turns:
    """A reactor whose turns the test takes."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []

    def callFromThread(self, fn: Callable[..., object], *args: object) -> None:
        self.due.append(lambda: fn(*args))

    def turn(self, calls: int = 100) -> None:
        for _ in range(min(calls, len(self.due))):
            self.due.pop(0)()


@pytest.mark.parametrize(("begun", "in_time"), [(False, False), (True, False), (True, True)])
def test_what_came_of_a_story_that_was_cancelled_is_handed_on_to_be_ended(begun, in_time):
    """
    Wherever the cancellation meets it: before it began, while it ran, when its result was on its way.  Once, and
    without a cancellation not at all.
    """
    reactor, taken, unwanted = Turns(), [], []
    came: Deferred[str] = Deferred(lambda it: it.callback("all the same"))  # what can't be cancelled any more
    running = Background(reactor).begin(lambda: came, taken.append, unwanted.append)
    reactor.turn(int(begun))
    if in_time:
        came.callback("in time")
    for _ in range(2):
        running.cancel()
    reactor.turn()
    assert taken == unwanted == ["in time" if in_time else "all the same"]


def test_a_story_that_fails_or_is_taken_leaves_nothing_unwanted():
    """A result goes to its caller; only one that comes after a cancel is handed to the disposer."""
    reactor, results, unwanted = Turns(), [], []
    Background(reactor).begin(lambda: succeed("taken"), results.append, unwanted.append)
    running = Background(reactor).begin(lambda: fail(KeyError("why")), results.append, unwanted.append)
    running.cancel()
    reactor.turn()
    assert results[0] == "taken"
    assert isinstance(results[1], Failure)
    assert unwanted == []


def test_an_ordinary_program_gets_one_daemon_thread_and_may_just_end():
    """Idempotent; the process ends though the reactor runs; its signal handlers are left alone."""
    out = alone(
        """
        import signal, threading
        before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD)
        from quire.client.threads import reactor_thread
        from twisted.internet.defer import succeed
        found = {reactor_thread().wait(lambda: succeed(threading.get_ident())) for _ in range(3)}
        threads = [each for each in threading.enumerate() if each.name == "quire-reactor"]
        assert len(found) == len(threads) == 1 and threads[0].daemon
        assert before == (
            signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD)
        )
        print("ended")
        """
    )
    assert out == "ended\n"


def test_its_reactor_measures_by_a_clock_that_is_never_set():
    """The reactor of the background thread uses the monotonic clock."""
    program = """
        import time
        from quire.client.threads import reactor_thread
        print(reactor_thread().reactor.seconds is time.monotonic)
        """
    assert alone(program) == "True\n"


def test_many_threads_may_ask_first():
    """Threads that start it at the same time share one reactor thread."""
    out = alone(
        """
        import threading
        from quire.client.threads import reactor_thread
        from twisted.internet.defer import succeed
        seen = []
        def ask(): seen.append(reactor_thread().wait(lambda: succeed(threading.get_ident())))
        threads = [threading.Thread(target=ask) for _ in range(8)]
        [each.start() for each in threads]; [each.join() for each in threads]
        print(len(seen), len(set(seen)))
        """
    )
    assert out == "8 1\n"


def test_a_forked_child_gets_the_error_that_reactors_do_not_survive():
    """Its parent's reactor thread is not there, so waiting would hang."""
    out = alone(
        """
        import os
        from quire.client.threads import reactor_thread
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


def test_every_operation_of_a_client_in_a_forked_child_says_at_once_that_it_did_not_survive(tmp_path):
    """Nothing waits, for the parent's threads or their locks neither, and the parent's connections go on."""
    out = alone(
        f"""
        import asyncio, os, pathlib, signal
        from quire.client import aio, connect
        from tests.real_cluster import RealCluster

        said = 0

        def refused(operation, *given, **named):
            global said
            try:
                made = operation(*given, **named)
                if asyncio.iscoroutine(made):
                    asyncio.run(made)
            except RuntimeError as error:
                assert "survive a fork" in str(error), error
                said += 1
            else:
                raise AssertionError(f"{{operation}} went on")

        async def handles():
            bk = await aio.connect(cluster.uri)
            writer = await bk.create_ledger()
            await writer.append(b"x")
            return bk, writer, await bk.open_ledger(writer.id, recover=False)

        async def one(entries):
            async for _entry in entries:
                pass

        async def soon(writer):
            writer.append_async(b"x")

        with RealCluster(pathlib.Path({str(tmp_path)!r}), 3) as cluster:
            bk = connect(cluster.uri)
            writer = bk.create_ledger()
            writer.append_many([b"one", b"two"])
            writer.write_lac()
            reader = bk.open_ledger(writer.id, recover=False)
            watch = bk.watch_ledger(writer.id, lambda _metadata: None)
            half = iter(reader)
            next(half)
            abk, awriter, areader = asyncio.run(handles())
            child = os.fork()
            if not child:
                signal.alarm(20)
                for many in (writer.append, writer.append_async):
                    refused(many, b"x")
                refused(writer.append, bytes(6 << 20))
                refused(writer.append_many, [b"x"])
                refused(writer.append_at, 1, b"x")
                for operation in (
                    writer.force, writer.write_lac, writer.close, watch.close, bk.create_ledger, bk.close,
                    bk.disable_ensemble_change,
                ):
                    refused(operation)
                refused(lambda: list(half))
                refused(lambda: list(reader))
                refused(lambda: list(reader.tail(1.0)))
                refused(lambda: list(bk.ledgers()))
                for operation in (bk.open_ledger, bk.delete_ledger, bk.metadata, bk.is_closed):
                    refused(operation, writer.id)
                refused(bk.watch_ledger, writer.id, print)
                refused(reader.read, 0, 0)
                refused(reader.read_unconfirmed, 0, 0)
                for operation in (
                    reader.read_last_confirmed, reader.try_read_last_confirmed, reader.read_last_entry, reader.close,
                ):
                    refused(operation)
                refused(connect, cluster.uri)
                refused(awriter.append, b"x")
                refused(soon, awriter)
                refused(awriter.append_many, [b"x"])
                for operation in (
                    awriter.force, awriter.write_lac, awriter.close, areader.read_last_confirmed, areader.close,
                    abk.create_ledger, abk.close,
                ):
                    refused(operation)
                for made in (
                    areader.__aiter__, lambda: areader.tail(1.0), abk.ledgers, lambda: abk.watch_ledger(writer.id),
                ):
                    refused(lambda: one(made()))
                print("child:", said, flush=True)
                os._exit(0)
            print("ended:", os.waitpid(child, 0)[1])
            writer.append(b"three")
            writer.close()
            with bk.open_ledger(writer.id) as again:
                print(*[entry.data for entry in again], [entry.data for entry in half])
            bk.close()
            asyncio.run(abk.close())
        """
    )
    assert out == "child: 42\nended: 0\nb'one' b'two' b'three' [b'two']\n"


def test_a_forked_child_with_a_client_ends_like_any_other():
    """
    By running to its end, or out of a `with` block whose own error or exit is not hidden; what generators end there
    says nothing.
    """
    out = alone(
        """
        import os, sys
        from quire.client import connect
        from quire.client.threads import reactor_thread
        from quire.metadata.memory.store import open_memory

        thread = reactor_thread()
        thread.wait(lambda: open_memory(thread.reactor, "memory://fork").init_cluster())
        with connect("memory://fork") as bk:
            listing = bk.ledgers()
            children = []
            for status in (0, 3):
                if not (child := os.fork()):
                    if status:
                        sys.exit(status)
                    break
                children.append(child)
            else:
                print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children], list(listing))
                sys.exit(0)
            del bk
            sys.exit(0)
        """
    )
    assert out == "[0, 3] []\n"


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
                from quire.client.threads import reactor_thread
                from twisted.internet.defer import succeed
                os._exit(reactor_thread().wait(lambda: succeed(0)))
            children.append(child)
        print([os.waitpid(child, 0)[1] for child in children])
        """
    )
    assert out == "[0, 0]\n"
