"""
A process in which the modules of `quire` are loaded, and which forks one for each command: to load them is most of
what a short command costs.

    python -m tests.tools.warm 3

Knows: for each message on the Unix socket with this number (arguments and environment in JSON; standard input, output
and error beside it) the answer is the id of the command's process and, once that has ended, its status.
Does not know: the reactor, which each command makes for itself.  It ends at the end of the socket.
"""

import gc
import json
import os
import socket
import sys
from importlib import import_module
from typing import Any, cast

# SPDX-License-Identifier: Apache-2.0

MESSAGE_BYTES_MAX = 1 << 20


def load() -> None:
    """What most commands load, none of which starts a thread or makes a reactor."""
    cast(dict[str, Any], sys.modules).setdefault("OpenSSL", None)  # as in a command (`quire.tools.terminal.running`)
    from quire.tools.main import COMMANDS

    ours = (
        "quire.bookie.lifecycle.bookie",
        "quire.bookie.offline.verify",
        "quire.client.api",
        "quire.log.api",
        "quire.metadata.sqlite.store",
        "quire.pipeline.copies.reading",
        "quire.replication.decommission",
        "quire.replication.mending",
        "quire.tools.failures",
    )
    theirs = ("twisted.internet.epollreactor", "twisted.logger")
    for name in (*(command.module for command in COMMANDS.values()), *ours, *theirs):
        import_module(name)
    assert "twisted.internet.reactor" not in sys.modules
    assert len(os.listdir("/proc/self/task")) == 1
    gc.collect()
    gc.freeze()


def serve(requests: socket.socket) -> list[str] | None:
    """One command after the other.  Returns the arguments in a command's process, None at the end of the socket."""
    while True:
        message, descriptors, _flags, _address = socket.recv_fds(requests, MESSAGE_BYTES_MAX, 3)
        if not message:
            return None
        arguments, environment = json.loads(message)
        child = os.fork()
        if not child:
            requests.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
                os.close(descriptor)
            sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
            sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv[1:] = arguments
            return cast(list[str], arguments)
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(b"%d" % child)
        _child, status = os.waitpid(child, 0)
        requests.send(b"%d" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    load()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        from quire.tools.main import main

        main(asked)
