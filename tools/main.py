"""
The entry point of `quire`: finds the sub-command, runs it, and turns what went wrong into one line and an exit status.

Knows: the names of the sub-commands and where each lives; exit status 0 done, 1 failed, 2 wrong usage, 130 interrupted;
what becomes of standard streams that are closed or can't be written.
Does not know: what they do.  A sub-command's module is imported only when it is asked for, so that `quire --help` is
quick and the bookie's process carries nothing it does not need.
"""

import difflib
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

# SPDX-License-Identifier: Apache-2.0


FAILED, WRONG_USAGE, INTERRUPTED = 1, 2, 130
STANDARD_OUTPUT = "standard output"  # as errors name it


class Command(NamedTuple):
    module: str
    about: str
    entry: str = "app"


COMMANDS: dict[str, Command] = {
    "demo": Command("quire.tools.commands.demo", "the tour: a file into a ledger while a bookie is killed"),
    "local": Command("quire.tools.commands.local", "a cluster on this machine until interrupted"),
    "metadata": Command("quire.tools.commands.metadata", "create, show, destroy, dump, restore the cluster's metadata"),
    "bookie": Command("quire.tools.commands.bookie", "start and stop a bookie; list bookies"),
    "doctor": Command("quire.tools.commands.doctor.command", "what is wrong with a cluster, how bad, the next command"),
    "console": Command("quire.console.command", "a cluster in a browser: bookies, ledgers, logs, charts"),
    "conf": Command("quire.tools.commands.conf", "how each key of a BookKeeper, Pulsar or quire file is treated"),
    "host": Command("quire.tools.host.commands", "several bookies of this machine as one unit"),
    "cookie": Command("quire.tools.commands.cookie", "a bookie's cookie"),
    "inspect": Command("quire.tools.commands.inspect", "print a stopped bookie's journal, entry log or index"),
    "ledger": Command("quire.tools.commands.ledger", "write, read, follow, show, delete, recover, check ledgers"),
    "log": Command("quire.tools.commands.log.group", "named logs: append, read, follow, own, list, delete"),
    "clusters": Command("quire.tools.commands.clusters", "a directory: which cluster holds a log"),
    "messages": Command(
        "quire.tools.commands.messages.group", "RocketMQ's message stores: import, search, put, export"
    ),
    "pulsar": Command("quire.tools.commands.pulsar.group", "Pulsar's topics without a broker: list, read, export"),
    "pipeline": Command("quire.tools.commands.pipeline", "Spark jobs over ledgers and logs: export, import"),
    "autorecovery": Command("quire.tools.commands.repair.autorecovery", "repair by itself: start, look, steer"),
    "underreplicated": Command(
        "quire.tools.commands.repair.underreplicated", "the repair queue: ledgers that are short of copies"
    ),
    "recover": Command("quire.tools.commands.repair.recover", "copy what a lost bookie held to others", "recover_app"),
    "decommission": Command(
        "quire.tools.commands.repair.recover", "take a bookie out of the cluster, down or up", "decommission_app"
    ),
    "rebalance": Command("quire.tools.commands.repair.rebalance", "move copies from full to empty bookies"),
    "scrub": Command("quire.tools.commands.repair.scrub", "read and verify every copy of every ledger, mend damage"),
    "shell": Command("quire.tools.commands.shell.app", "BookKeeper's own names for its commands"),
    "bench": Command("quire.tools.commands.bench", "throughput and latency of a cluster"),
}
EXAMPLES = """Examples:
  quire demo                                 see it work: one bookie is killed
  quire local --dir ~/quire                  a cluster to try things on
  export QUIRE_METADATA=sqlite://$HOME/quire/metadata.db
  quire ledger write --lines -f access.log   prints the new ledger's id
  quire ledger read 0 | tail -1"""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Runs `quire` with the process's arguments and exits."""
    open_streams()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what has no reactor ends by it as by Ctrl-C
    code = status(list(sys.argv[1:] if argv is None else argv))
    if code == INTERRUPTED:  # Python gives the signals back as it ends: another one would decide the status
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(code)


def open_streams() -> None:
    """Opens descriptors 0 to 2 that the caller closed on the null device, or the next file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free, which is the closed one
            os.set_inheritable(number, True)  # a daemon's process takes our place
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
    given = sys.stdout
    buffer = io.BufferedWriter(StandardOutput(1, "w", closefd=False))
    line_buffering = given.isatty()
    sys.stdout = io.TextIOWrapper(buffer, given.encoding, given.errors, line_buffering=line_buffering)


class StandardOutput(io.FileIO):
    """Standard output; its errors name it."""

    def write(self, data: Any, /) -> Any:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def end_output() -> None:
    """There is nowhere to write to any more, not even at the interpreter's own flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def status(argv: list[str]) -> int:
    """Runs one command line; returns the exit status."""
    try:
        code = run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return complain(INTERRUPTED, "interrupted")
    except BrokenPipeError:
        end_output()  # its reader has gone (`… | head`)
        return FAILED
    except Exception as error:
        if isinstance(error, OSError) and error.filename == STANDARD_OUTPUT:
            end_output()
        from quire.tools.failures import explained

        failure = explained(error)
        if failure is None or os.environ.get("QUIRE_TRACEBACK"):
            raise
        return complain(*failure)
    return code


def run(argv: list[str]) -> int:
    """Runs the sub-command; raises what it raises."""
    if not argv or argv[0] in {"--help", "-h", "help"}:
        print(overview())
        return 0 if argv else WRONG_USAGE
    if argv[0] in {"--version", "-V"}:
        from quire.conf.version import own_version

        print(f"quire {own_version()}")
        return 0
    command = COMMANDS.get(argv[0])
    if command is None:
        near = difflib.get_close_matches(argv[0], COMMANDS, 1)
        hint = f"did you mean `quire {near[0]}`?" if near else "`quire --help` lists the commands"
        return complain(WRONG_USAGE, f"there is no command {argv[0]!r}; {hint}")
    return exit_status(getattr(import_module(command.module), command.entry), argv)


def exit_status(app: object, argv: list[str]) -> int:
    """Calls a sub-command's typer application, which exits by SystemExit."""
    assert callable(app)
    try:
        app(args=argv[1:], prog_name=f"quire {argv[0]}")
    except SystemExit as exit_:
        if exit_.code == INTERRUPTED:
            raise KeyboardInterrupt from exit_
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    return 0


def complain(code: int, text: str) -> int:
    print(f"quire: {text}", file=sys.stderr)
    return code


def overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = [f"  {name:<{width}}{command.about}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: quire COMMAND [OPTIONS] …",
            "",
            "A leaderless, replicated ledger service with Apache BookKeeper's protocol.",
            "",
            "Commands:",
            *lines,
            "",
            "Every command has --help (-h) with an example, and takes --json and",
            "--metadata URI (or QUIRE_METADATA).",
            "Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.",
            "",
            EXAMPLES,
        ]
    )
