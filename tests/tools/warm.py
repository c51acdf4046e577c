"""
A process in which the modules of `quire` are loaded, and which forks one for each command or daemon: to load them is
most of what a short command costs, and most of the start of a bookie.

    python -m tests.tools.warm 3

Knows: for each message on the Unix socket with this number (module, arguments, environment and whether it leads a new
session, in JSON; standard input, output and error beside it) the answer is the id of the process that runs the module's
`main` and, once that has ended, its wait status.  To a message with another such socket alone beside it, a fork of this
process serves that one, so that several run side by side.  What such a process itself starts with `subprocess` is
forked, too, if it is one of `STARTERS`: from a fork beside it, in its session and process group, that ends with it.
Does not know: the reactor, which each command makes for itself.  It ends at the end of the socket.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tests.tools.command import Warm
from tests.tools.forked import ForkedPopen

# SPDX-License-Identifier: Apache-2.0

MESSAGE_BYTES_MAX = 1 << 20
STARTERS = ("local", "demo")  # commands that start many processes
STATUS: list[int] = []  # of a fork whose command has ended
WATCHING = Path(__file__).parents[1] / "watched" / "sitecustomize.py"


def load() -> None:
    """What most commands load, none of which starts a thread or makes a reactor."""
    cast(dict[str, Any], sys.modules).setdefault("OpenSSL", None)  # as in a command (`quire.tools.terminal.running`)
    from quire.tools.main import COMMANDS

    ours = (
        "quire.bookie.lifecycle.bookie",
        "quire.bookie.offline.verify",
        "quire.client.api",
        "quire.log.api",
        "quire.metadata.sqlite.tree",
        "quire.pipeline.copies.reading",
        "quire.replication.decommission",
        "quire.replication.mending",
        "quire.tools.daemons.autorecovery",
        "quire.tools.daemons.bookie",
        "quire.tools.daemons.serving",
        "quire.tools.failures",
    )
    theirs = ("twisted.internet.epollreactor", "twisted.logger")
    for name in (*(command.module for command in COMMANDS.values()), *ours, *theirs):
        import_module(name)
    assert "twisted.internet.reactor" not in sys.modules
    assert len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()


def serve(requests: socket.socket) -> tuple[str, list[str]] | None:
    """
    One process after the other.  Returns its module and arguments in such a process, None at the end of the socket.
    """
    forks: set[int] = set()  # of ourselves
    while True:
        message, descriptors, _flags, _address = socket.recv_fds(requests, MESSAGE_BYTES_MAX, 3)
        if not message:
            return None
        forks = {fork for fork in forks if os.waitpid(fork, os.WNOHANG) == (0, 0)}
        if len(descriptors) == 1:
            fork = os.fork()
            if not fork:
                requests.close()
                return serve(socket.socket(fileno=descriptors[0]))
            os.close(descriptors[0])
            forks.add(fork)
            continue
        module, arguments, environment, leads = json.loads(message)
        child = os.fork()
        if not child:
            requests.close()
            if leads:
                os.setsid()
            if module == "quire.tools" and arguments[:1] and arguments[0] in STARTERS:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                if not os.fork():
                    ours.close()
                    for descriptor in descriptors:
                        os.close(descriptor)
                    return serve(theirs)
                theirs.close()
                ForkedPopen.nursery = Warm(ours)
                subprocess.Popen = ForkedPopen  # type: ignore[misc]
            begin(module, arguments, environment, descriptors)
            return module, arguments
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(b"%d" % child)
        _child, status = os.waitpid(child, 0)
        requests.send(b"%d" % status)


def begin(module: str, arguments: list[str], environment: dict[str, str], streams: list[int]) -> None:
    """Gives a fork what a process of its own has."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(environment.pop("WARM_CWD", "."))  # of a script that went elsewhere
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    sys.orig_argv = [sys.executable, "-m", module, *arguments]
    runpy.run_path(str(WATCHING))


def run(module: str, arguments: list[str]) -> None:
    """Runs the module's `main` in a fork."""
    try:
        import_module(f"{module}.main" if module == "quire.tools" else module).main(arguments)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            STATUS.append(end.code or 0)
        raise
    STATUS.append(0)


def end_at_once() -> None:
    """
    Ends a fork, as the last of what runs at its end, without taking apart what is loaded: that would touch, and so
    copy, all of it, which takes longer than most commands.
    """
    if STATUS:
        with suppress(OSError, ValueError):  # else the interpreter says it
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(STATUS[0])


if __name__ == "__main__":
    atexit.register(end_at_once)
    load()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for what is forked
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is None:
        os._exit(0)
    run(*asked)
