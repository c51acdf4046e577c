"""
The frame of every daemon's process: command line, pid file, log, detaching, the reactor from its first
turn to its last, and the exit status: 0 after a stop that was asked for, 1 when it could not serve or had to stop by
itself, 2 for a bad command line or configuration.

Knows: signals, files and descriptors of the process.  Does not know: what is served; a `Lifetime` starts and stops it.

Safety: assertions are part of the design, so `python -O` is refused.
"""

import argparse
import ctypes
import gc
import os
import pwd
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from quire.conf.properties import Property
    from quire.tools.daemons.lifetime import Ending, Lifetime
    from quire.tools.process_reactor import ProcessReactor

# SPDX-License-Identifier: Apache-2.0

FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
# How long a thread waits for the interpreter: with more, appends beside catch-up reads become slower; with less,
# nothing becomes faster.
SWITCH_INTERVAL_S = 0.00001
M_ARENA_MAX = -8  # of glibc's mallopt
LOG_BYTES_MAX, OLD_LOGS_MAX = 16 << 20, 4  # with --daemon: of one file, and how many full ones are kept as .1 to .4
# Batches make few cycles, and the start's objects are frozen besides.  But each job of a thread leaves four objects in
# a ring (Twisted's), and 20,000 of them take 15 ms in one piece, in which nobody is served.
GC_THRESHOLDS = (20_000, 200, 50)


class DaemonKind(NamedTuple):
    """A kind of daemon: its name in messages, the module that its process runs, the command that starts it."""

    name: str
    module: str
    command: str


BOOKIE = DaemonKind("bookie", "quire.tools.daemons.bookie", "quire bookie")
HOST = DaemonKind("host of bookies", "quire.tools.host.daemon", "quire host")
AUTORECOVERY = DaemonKind("AutoRecovery", "quire.tools.daemons.autorecovery", "quire autorecovery")
CONSOLE = DaemonKind("console", "quire.console.daemon", "quire console")
KINDS = BOOKIE, HOST, AUTORECOVERY, CONSOLE


def parser(kind: DaemonKind, about: str, log: str) -> argparse.ArgumentParser:
    """The options that all daemons take.  `log`: where the log of a detached one goes, in words."""
    made = argparse.ArgumentParser(prog=f"{kind.command} start", description=about)
    made.add_argument("--conf", metavar="FILE", help="its configuration: Java properties with BookKeeper's keys")
    made.add_argument("--metadata", metavar="URI", help="overrides metadataServiceUri")
    made.add_argument("--daemon", action="store_true", help="detach; returns when it serves")
    made.add_argument("--pidfile", metavar="F", help="the process id is kept there while it runs")
    made.add_argument("--log", metavar="F", help=f"with --daemon, where the log goes; {log} if not given")
    made.add_argument("--json", action="store_true", help="the ready line is a JSON document")
    made.add_argument(
        "--stop-with-stdin", action="store_true", help="stop when standard input closes: when the parent has gone"
    )
    return made


def complain(code: int, text: str) -> int:
    print(f"quire: {text}", file=sys.stderr, flush=True)
    return code


class Prepared(NamedTuple):
    """
    The configuration of a daemon.  `log`: where that of a detached one goes, if not given; `reloads`: by SIGHUP;
    `permitted_users`: who may start it, everybody if there are none.
    """

    log: str
    warnings: Sequence[str]
    make: "Callable[[ProcessReactor], Lifetime]"
    reloads: bool = False
    permitted_users: Sequence[str] = ()


def status(
    kind: DaemonKind,
    known: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    prepare: "Callable[[argparse.Namespace, list[Property]], Prepared]",
) -> int:
    """Runs a daemon; its exit status.  `prepare` reads the configuration; the command line `known` is stronger."""
    if sys.flags.optimize:
        text = f"python -O removes the assertions that keep data safe; start {kind.name} without it"
        return complain(WRONG_USAGE, text)
    arguments = known.parse_args(argv)
    from quire.conf.properties import ConfigurationError, Property

    extra = [Property("metadataServiceUri", arguments.metadata, "--metadata")] if arguments.metadata else []
    try:
        prepared = prepare(arguments, extra)
        check_user(prepared.permitted_users)
    except ConfigurationError as failure:
        return complain(WRONG_USAGE, str(failure))
    return lived(kind, arguments, prepared)


def check_user(permitted: Sequence[str]) -> None:
    """`ConfigurationError` when the user of this process is none of those that may start it."""
    if not permitted:
        return
    from quire.conf.properties import ConfigurationError

    number = os.geteuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = str(number)
    if name not in permitted:
        raise ConfigurationError(
            f"permittedStartupUsers={','.join(permitted)} does not name {name}, who starts it: run it as one of them"
        )


def lived(kind: DaemonKind, arguments: argparse.Namespace, prepared: Prepared) -> int:
    """The exit status of a run, from the pid file on."""
    try:
        check_pidfile(arguments.pidfile, kind)
        if arguments.daemon:
            arguments.log = arguments.log or prepared.log
            detached = detach(arguments.log, kind)
            if detached is not None:
                return detached
    except OSError as failure:
        return complain(FAILED, os_text(failure))
    ending = kept(arguments, prepared)
    if ending is None:
        return 0
    code = WRONG_USAGE if ending.wrong_usage else FAILED
    if arguments.daemon:
        with suppress(BrokenPipeError):  # the first process has had its ready line
            os.write(sys.stdout.fileno(), f"{code} {' '.join(ending.reason.splitlines())}\n".encode())
    return complain(code, ending.reason)  # the last line that is written


def kept(arguments: argparse.Namespace, prepared: Prepared) -> "Ending | None":
    """One run under its pid file, which is removed at its end."""
    if not arguments.pidfile:
        return run(arguments, prepared)
    pidfile = Path(arguments.pidfile)
    try:
        pidfile.write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as failure:
        from quire.tools.daemons.lifetime import Ending

        return Ending(os_text(failure))
    try:
        return run(arguments, prepared)
    finally:
        pidfile.unlink(missing_ok=True)


def os_text(failure: OSError) -> str:
    """Returns what went wrong, with the file where there is one."""
    return f"{failure.filename}: {failure.strerror}" if failure.filename else str(failure)


def check_pidfile(path: str | None, kind: DaemonKind) -> None:
    """`OSError` when another one of the kind runs under this file."""
    if path is None or not Path(path).exists():
        return
    text = Path(path).read_text(encoding="ascii", errors="replace").strip()
    if text.isdecimal() and int(text) != os.getpid() and is_running(int(text), kind):
        raise OSError(
            f"{path} names process {text}, which is a running {kind.name}; `{kind.command} stop --pidfile {path}` "
            "stops it"
        )


def is_running(pid: int, kind: DaemonKind) -> bool:
    """True if a process is one of ours: a process id is soon given to another program."""
    try:
        return kind.module.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def detach(log: str, kind: DaemonKind) -> int | None:
    """
    Goes on in a process of its own session whose output goes to `log`: None there.  In the first process it waits for
    the ready line, prints it and gives the exit status; or for the status and the reason of one that did not start.
    Ctrl-C and SIGTERM stop the other one, too.
    """
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    log_handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    there, here = os.pipe()
    leader = os.fork()
    if leader:
        os.close(here)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with os.fdopen(there, "rb") as lines:
                said = lines.readline().decode()
        except KeyboardInterrupt:
            with suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGTERM)  # nobody else gets its number while it is not waited for
            return complain(INTERRUPTED, f"interrupted; {kind.name} is asked to stop, and its log is {log}")
        if not said:
            return complain(FAILED, f"{kind.name} did not start; {log} says why")
        code, _, reason = said.rstrip("\n").partition(" ")
        if code.isdecimal():
            return complain(int(code), f"{kind.name} did not start: {reason}; its log is {log}")
        sys.stdout.write(said)
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


def run(arguments: argparse.Namespace, prepared: Prepared) -> "Ending | None":
    """Serves until a signal, a fault or the end of input; why it ended by itself."""
    gc.set_threshold(*GC_THRESHOLDS)  # now, for the start makes most objects
    # Twisted loads OpenSSL wherever it is installed; a daemon without TLS does not need those 12 MB.
    cast(dict[str, Any], sys.modules).setdefault("OpenSSL", None)
    from twisted.internet import reactor as global_reactor
    from twisted.logger import Logger

    from quire.metadata.clock import steady, stop_once
    from quire.metadata.readiness import straighten

    reactor = cast("ProcessReactor", global_reactor)
    steady(reactor)
    straighten(reactor)
    stop_once(reactor)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    share_memory()
    begin_logging(log_file(arguments.log) if arguments.daemon else sys.stderr)
    service = prepared.make(reactor)
    for warning in prepared.warnings:
        Logger(namespace="quire.conf").warn("{warning}", warning=warning)
    reactor.callWhenRunning(service.begin)
    if arguments.stop_with_stdin:
        reactor.callWhenRunning(reactor.addReader, StandardInput(reactor))
    reactor.addSystemEventTrigger("before", "shutdown", service.stop)
    if prepared.reloads:
        signal.signal(signal.SIGHUP, lambda _number, _frame: reactor.callFromThread(service.reload))
    elif arguments.daemon:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    reactor.run()
    return service.ending


def share_memory() -> None:
    """
    Threads that start from now on allocate from one heap.  glibc would give each of them its own, where what the others
    have freed is idle: 20 MB under load.  They do not wait for each other longer than they do for the interpreter:
    measured with 150,000 ledgers.
    """
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def settle_memory() -> None:
    """Freezes what the start made: a look at it took the collector a tenth of a second for a thousand small objects."""
    gc.freeze()


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
