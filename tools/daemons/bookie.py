"""
The process of one bookie: `python -m quire.tools.daemons.bookie --conf FILE`.

Knows: configuration files, signals, the pid file, where logs go, how to detach, and the exit status: 0 after a stop
that was asked for, 1 when the bookie could not serve or had to stop by itself, 2 for a bad command line or
configuration.
Does not know: what a bookie does; `serving` starts and stops it.

It imports neither typer nor rich, so that the process stays small; `quire bookie start` replaces itself by this one.
When the bookie serves, one line goes to standard output:

    ready BOOKIE-ID HOST:PORT METRICS-URL

Safety: assertions are part of the design, so `python -O` is refused.
"""

import argparse
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

if TYPE_CHECKING:
    from quire.conf.bookie import BookieOptions
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

FAILED, WRONG_USAGE = 1, 2
# How long a thread waits for the interpreter: with more, appends beside catch-up reads become slower; with less,
# nothing becomes faster.
SWITCH_INTERVAL_S = 0.00001
M_ARENA_MAX = -8  # of glibc's mallopt
LOG_NAME = "bookie.log"
LOG_BYTES_MAX, OLD_LOGS_MAX = 16 << 20, 4  # with --daemon: of one file, and how many full ones are kept as .1 to .4


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs a bookie until its stop is asked for, and exits."""
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
        help=f"with --daemon, where the log goes; {LOG_NAME} in the first journal directory if not given",
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


def run(options: "BookieOptions", warnings: Sequence[str], arguments: argparse.Namespace) -> int:
    """Serves until a signal, a fault, or the end of standard input."""
    # Twisted loads OpenSSL wherever it is installed; a bookie without TLS does not need those 12 MB.
    cast(dict[str, Any], sys.modules).setdefault("OpenSSL", None)
    from twisted.internet import reactor as global_reactor

    from quire.metadata.clock import steady
    from quire.tools.daemons.serving import Serving

    reactor = cast("ProcessReactor", global_reactor)
    steady(reactor)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    share_memory()
    begin_logging(log_file(arguments.log) if arguments.daemon else sys.stderr)
    for warning in warnings:
        Serving.log.warn("{warning}", warning=warning)
    serving = Serving(reactor, options, arguments.restore, arguments.json)
    reactor.callWhenRunning(serving.begin)
    if arguments.stop_with_stdin:
        reactor.callWhenRunning(reactor.addReader, StandardInput(reactor))
    reactor.addSystemEventTrigger("before", "shutdown", serving.stop)
    if arguments.daemon:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reactor.run()
    ending = serving.ending
    if ending is None:
        return 0
    return complain(WRONG_USAGE if ending.wrong_usage else FAILED, ending.reason)  # the last line that is written


def share_memory() -> None:
    """
    Threads that start from now on allocate from one heap.  glibc would give each of them its own, where what the others
    have freed is idle: 20 MB under load.  They do not wait for each other longer than they do for the interpreter:
    measured with 150,000 ledgers.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


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
        """The other end hung up: with epoll the end of a pipe is reported so."""
        self._stop()

    def _stop(self) -> None:
        if self._reactor.running:
            self._reactor.stop()


if __name__ == "__main__":
    main()
