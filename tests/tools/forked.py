"""
`subprocess.Popen` that forks what would be `python -m quire.tools…`, and a program (`program`), from the process which
has their modules loaded (`warm`): a bookie so started takes a fifth of the CPU time.  A ZooKeeper it gives the archive
of its classes (`java`).  Everything else it starts as ever.

Knows: the few methods of `Popen` that start a process and ask for its end.  Does not know: what the process does.
"""

import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tools.command import PROGRAM, Warm, fork, warm
from tests.tools.java import sharing

# SPDX-License-Identifier: Apache-2.0

ROOT = Path(__file__).parents[2]


class ForkedPopen(subprocess.Popen):
    """A process of ours that is forked, or any other."""

    nursery: Warm | None = None  # what forks; None: the first, which loads the modules
    _ended: socket.socket | None = None  # has its wait status in the end, if it was forked

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *more) -> None:
        _startupinfo, _flags, _shell, *pipes = more[:9]
        *_others, leads_session, group = more
        if executable or preexec_fn or pass_fds or cwd or group != -1 or not is_ours(args, env):
            args = sharing(args)
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *more)
            return
        self._ended = (self.nursery or warm()).serving_another()
        streams = [number if given == -1 else given for number, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        _python, _m, module, *arguments = args
        self.pid = fork(self._ended, module, arguments, os.environ if env is None else env, streams, leads_session)
        self._child_created = True
        self._close_pipe_fds(*pipes)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._ended is None:
            return super()._try_wait(wait_flags)
        if wait_flags and not select.select([self._ended], [], [], 0)[0]:
            return 0, 0
        status = int(self._ended.recv(100))
        self._ended.close()
        return self.pid, status

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._ended is None:
            return super()._internal_poll(*given, **named)
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode


def is_ours(command: object, environment: Mapping[str, str] | None) -> bool:
    """True if a fork is the same: a module of the tools, the interpreter's own options and ours for Python."""
    return (
        isinstance(command, list)
        and len(command) > 2
        and command[:2] == [sys.executable, "-m"]
        and (command[2].startswith("quire.tools") or command[2] == PROGRAM[2])
        and Path.cwd() == ROOT
        and (environment is None or pythons(environment) == pythons(os.environ))
    )


def pythons(environment: Mapping[str, str]) -> dict[str, str]:
    """What steers an interpreter."""
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}
