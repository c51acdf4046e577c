"""
The process of one bookie: `python -m quire.tools.daemons.bookie --conf FILE`.

Knows: configuration files, signals, the pid file, where logs go, how to detach, and that the exit status tells the
truth: 0 after a stop that was asked for, 1 when the bookie could not serve or had to give up, 2 for a bad command line
or configuration.
Does not know: what a bookie does.

It imports neither typer nor rich, so that the process stays small; `quire bookie start` replaces itself by this one.
When the bookie serves, one line goes to standard output:

    ready BOOKIE-ID HOST:PORT METRICS-URL

Safety: assertions are part of the design, so `python -O` is refused.
"""

import argparse
import ctypes
import gc
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

FAILED, WRONG_USAGE = 1, 2
# who needs the interpreter waits so long for it: appends beside catch-up reads are slower with more, nothing is with
# less
SWITCH_INTERVAL_S = 0.00001
GC_THRESHOLDS = (200_000, 20, 50)  # batches make few cycles; the start's objects are frozen besides
M_ARENA_MAX = -8  # of glibc's mallopt
LOG_NAME = "bookie.log"
LOG_BYTES_MAX, OLD_LOGS_MAX = 16 << 20, 4  # with --daemon: of one file, and how many full ones are kept as .1 to .4


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a bookie until it is told to stop, and exits."""
    sys.exit(status(argv))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="quire bookie start", description="Runs a bookie in the foreground until SIGTERM."
    )
    made.add_argument("--conf", metavar="FILE", help="its configuration: Java properties with BookKeeper's keys")
    made.add_argument("--metadata", metavar="URI", help="overrides metadataServiceUri")
    made.add_argument("--daemon", action="store_true", help="detach; returns when the bookie serves")
    made.add_argument("--pidfile", metavar="F", help="the process id is kept there while it runs")
    made.add_argument(
        "--log",
        metavar="F",
        help=f"with --daemon, where the log goes; {LOG_NAME} in the first journal directory unless told",
    )
    made.add_argument(
        "--restore",
        action="store_true",
        help="directories that are empty now were lost: copy what they held from other bookies first",
    )
    made.add_argument("--json", action="store_true", help="the ready line is a JSON document")
    made.add_argument(
        "--stop-with-stdin", action="store_true", help="stop when standard input closes: when the parent has gone"
    )
    return made


def status(argv: Sequence[str] | None) -> int:
    """The exit status of one run."""
    if sys.flags.optimize:
        return complain(
            WRONG_USAGE, "python -O removes the assertions that keep data safe; start the bookie without it"
        )
    arguments = parser().parse_args(argv)
    from quire.conf.bookie import BookieOptions
    from quire.conf.properties import ConfigurationError, Property, load

    extra = [Property("metadataServiceUri", arguments.metadata, "--metadata")] if arguments.metadata else []
    try:
        options, warnings = load(BookieOptions, arguments.conf, os.environ, extra)
    except ConfigurationError as failure:
        return complain(WRONG_USAGE, str(failure))
    try:
        check_pidfile(arguments.pidfile)
        if arguments.daemon:
            arguments.log = arguments.log or os.path.join(options.journal_directories[0], LOG_NAME)
            detached = detach(arguments.log)
            if detached is not None:
                return detached
        if arguments.pidfile:
            Path(arguments.pidfile).write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as failure:
        return complain(FAILED, f"{failure.filename}: {failure.strerror}" if failure.filename else str(failure))
    try:
        return run(options, warnings, arguments)
    finally:
        if arguments.pidfile:
            Path(arguments.pidfile).unlink(missing_ok=True)


def complain(code: int, text: str) -> int:
    print(f"quire: {text}", file=sys.stderr, flush=True)
    return code


def check_pidfile(path: str | None) -> None:
    """`OSError` when another bookie runs under this file."""
    if path is None or not Path(path).exists():
        return
    text = Path(path).read_text(encoding="ascii", errors="replace").strip()
    if text.isdecimal() and int(text) != os.getpid() and is_bookie(int(text)):
        raise OSError(
            f"{path} names process {text}, which is a running bookie; `quire bookie stop --pidfile {path}` stops it"
        )


def is_bookie(pid: int) -> bool:
    """Whether a process is one of ours: a process id is soon given to another program."""
    try:
        return b"quire.tools.daemons.bookie" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def detach(log: str) -> int | None:
    """
    Goes on in a process of its own session whose output goes to `log`: None there.  In the first process it waits for
    the ready line, prints it and gives the exit status.
    """
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    log_handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    there, here = os.pipe()
    if os.fork():
        os.close(here)
        with os.fdopen(there, "rb") as lines:
            ready = lines.readline()
        if not ready:
            return complain(FAILED, f"the bookie did not start; {log} says why")
        sys.stdout.write(ready.decode())
        sys.stdout.flush()
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (here, 1), (log_handle, 2)):
        os.dup2(source, target)
    for handle in (there, here, log_handle, nothing):
        os.close(handle)
    return None


def log_file(path: str, bytes_max: int = LOG_BYTES_MAX, old_max: int = OLD_LOGS_MAX) -> Any:
    """
    A file that is put aside when it is full; the oldest goes.  Standard error follows it, for what the interpreter
    itself says.  What is no file (a device, a pipe) is written to as it is.
    """
    if not Path(path).is_file():
        return sys.stderr
    from twisted.python.logfile import LogFile

    class Followed(LogFile):
        def _openFile(self) -> None:
            super()._openFile()  # type: ignore[no-untyped-call]  # Twisted's has no annotations
            os.dup2(self._file.fileno(), sys.stderr.fileno())

    return Followed(
        os.path.basename(path), os.path.dirname(path) or ".", rotateLength=bytes_max, maxRotatedFiles=old_max
    )  # type: ignore[no-untyped-call]


def begin_logging(out: Any) -> None:
    """Log events of level info and above to `out`, a line each."""
    from twisted.logger import (
        FilteringLogObserver,
        LogLevel,
        LogLevelFilterPredicate,
        globalLogBeginner,
        textFileLogObserver,
    )

    # zope.interface declares what these implement; a type checker can't see it.
    wanted: Any = LogLevelFilterPredicate(defaultLogLevel=LogLevel.info)
    lines: Any = textFileLogObserver(out, timeFormat="%Y-%m-%dT%H:%M:%S%z")
    observer: Any = FilteringLogObserver(lines, [wanted])
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=False)


def run(options: Any, warnings: Sequence[str], arguments: argparse.Namespace) -> int:
    """Serves until a signal, a fault, or the end of standard input."""
    # Twisted loads OpenSSL wherever it is installed; a bookie without TLS does not need those 12 MB.
    cast(dict[str, Any], sys.modules).setdefault("OpenSSL", None)
    from twisted.internet import reactor as global_reactor
    from twisted.internet.defer import CancelledError, Deferred
    from twisted.logger import Logger
    from twisted.python.failure import Failure

    from quire.bookie.files import StorageError
    from quire.bookie.lifecycle.bookie import Bookie
    from quire.bookie.lifecycle.contract import BookieFailed
    from quire.bookie.lifecycle.ids import IdentityError
    from quire.bookie.lifecycle.parts import open_storage
    from quire.metadata.clock import steady
    from quire.metadata.uri import open_store
    from quire.protocol.errors import LedgerError
    from quire.tools.daemons.descriptors import divided, raised
    from quire.tools.daemons.refill import Refill
    from quire.tools.daemons.surplus import SurplusRuns

    reactor = cast("ProcessReactor", global_reactor)
    steady(reactor)
    log = Logger(namespace="quire.bookie")
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    share_memory()
    begin_logging(log_file(arguments.log) if arguments.daemon else sys.stderr)
    for warning in warnings:
        log.warn("{warning}", warning=warning)
    outcome: list[tuple[int, str | None]] = []
    cleanup: list[Any] = []
    started: list[Bookie] = []

    def end(code: int, text: str | None = None) -> None:
        if not outcome:
            outcome.append((code, text))
        if reactor.running:
            reactor.callLater(0, lambda: reactor.running and reactor.stop())

    async def serve() -> None:
        try:
            parts = divided(raised(), options)
            log.info(
                "{limit} files may be open: {store} in each index and table, {logs} entry logs in each ledger "
                "directory, "
                "{connections} connections (connectionsMax={wanted})",
                wanted=options.connections_max,
                **parts._asdict(),
            )
            served = options.model_copy(update={"connections_max": parts.connections})
            store = await open_store(reactor, options.metadata_uri, session_timeout_ms=options.session_timeout_ms)
            cleanup.append(store.close)
            bookie = Bookie(
                reactor,
                served,
                store,
                storage=partial(open_storage, tables_open_max=parts.store, logs_open_max=parts.logs),
                restore=arguments.restore,
            )
            await bookie.start()
            cleanup.append(bookie.stop)
            refill = Refill(reactor, bookie)
            cleanup.append(refill.stop)
            bookie.limbo.listen(refill)
            refill.start()
            if arguments.restore:
                await refill.first_round()
            surplus = SurplusRuns(reactor, bookie)
            cleanup.append(surplus.stop)
            surplus.start()
            started.append(bookie)
            settle_memory()
            if not bookie.ended.called:
                announce(bookie, arguments.json)
            await bookie.ended
        except (IdentityError, StorageError, BookieFailed, LedgerError, OSError) as failure:
            end(FAILED, str(failure) or type(failure).__name__)
        except ValueError as failure:  # a metadata URI that no driver serves
            end(WRONG_USAGE, str(failure))
        except CancelledError:
            return

    def unexpected(failure: Failure) -> None:
        log.failure("the bookie failed", failure)
        end(FAILED, "the bookie failed in a way that it should not; its log has the place")

    serving: list[Deferred[None]] = []

    def stopping() -> Deferred[None]:
        """A signal came, or `end` was called: puts everything away, latest first."""

        async def put_away() -> None:
            if not started:
                over: Deferred[None] = Deferred()
                serving[0].addBoth(over.callback)
                serving[0].cancel()  # a start that is under way puts away what it had opened
                await over
            while cleanup:
                await cleanup.pop()()

        return Deferred.fromCoroutine(put_away()).addErrback(lambda failure: log.failure("stopping", failure))

    def begin() -> None:
        serving.append(Deferred.fromCoroutine(serve()).addErrback(unexpected))
        if arguments.stop_with_stdin:
            reactor.addReader(StandardInput(reactor))

    reactor.callWhenRunning(begin)
    reactor.addSystemEventTrigger("before", "shutdown", stopping)
    if arguments.daemon:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reactor.run()
    code, text = outcome[0] if outcome else (0, None)
    return complain(code, text) if text else code  # the last line that is written


def share_memory() -> None:
    """
    Threads that start from now on allocate from one heap.  glibc would give each of them its own, where what the others
    have freed lies idle: 20 MB under load.  They do not wait for each other longer than they do for the interpreter:
    measured with 150,000 ledgers.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def settle_memory() -> None:
    """What the start made stays for ever: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def announce(bookie: Any, as_json: bool) -> None:
    """The ready line."""
    url = f"http://{bookie.options.metrics_host}:{bookie.http_port}/metrics"
    if as_json:
        ready = {
            "ready": bookie.id,
            "address": f"{bookie.host}:{bookie.port}",
            "metrics": url,
            "pid": os.getpid(),
            "read_only": bookie.read_only,
        }
        print(json.dumps(ready), flush=True)
    else:
        print(f"ready {bookie.id} {bookie.host}:{bookie.port} {url}", flush=True)


class StandardInput:
    """Watches standard input and stops the reactor at its end."""

    def __init__(self, reactor: "ProcessReactor") -> None:
        self._reactor = reactor

    def fileno(self) -> int:
        return 0

    def logPrefix(self) -> str:
        return "standard input"

    def doRead(self) -> None:
        if not os.read(0, 4096):
            self._reactor.removeReader(self)
            self._stop()

    def connectionLost(self, reason: object) -> None:
        """The other end hung up: with epoll that is how the end of a pipe is told."""
        self._stop()

    def _stop(self) -> None:
        if self._reactor.running:
            self._reactor.stop()


if __name__ == "__main__":
    main()
