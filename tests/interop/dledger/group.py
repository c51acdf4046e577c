"""
A group of DLedger on this machine: three members as Java processes, each driven by lines, and clients of the registers
that it may keep.

Knows: how to start, ask, kill and restart members, and who leads.  DLedger's own settings are left as they are.
Does not know: what is measured, or expected of them.
"""

import contextlib
import json
import pathlib
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from tests.interop import peer

# SPDX-License-Identifier: Apache-2.0

VERSION = "0.4.0"
MEMBERS = 3
GROUP = "g"
ELECTION_SECONDS_MAX = 60.0
Line = dict[str, Any]


def classes() -> str:
    """The jars and the compiled driver of DLedger."""
    return peer.compiled(peer.cache() / f"dledger-{VERSION}", pathlib.Path(__file__).with_name("Group.java"))


def command(folder: pathlib.Path, heap: str, *words: str) -> list[str]:
    options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", f"-Duser.home={folder}"]  # its logs go below that
    return peer.java_command(options, ["Group", *words], folder, classes=classes())


class Member(peer.Driver):
    """One member's process; a killed one is made anew on its folder and port."""

    def __init__(self, group: "Group", id_: str) -> None:
        self.id = id_
        words = [f"group={GROUP}", f"id={id_}", f"peers={group.peers}", f"dir={group.folder}"]
        words += ["register=yes"] if group.register else []
        super().__init__(command(group.folder, group.heap, "member", *words))


class Group:
    """`with Group() as group`: three members, one of which leads.  `directory`: where their logs are."""

    def __init__(self, directory: str | None = None, heap: str = "512m", register: bool = False) -> None:
        self.heap, self.register = heap, register
        self.temporary = tempfile.TemporaryDirectory(dir=directory, prefix="quire-dledger-", ignore_cleanup_errors=True)
        self.folder = pathlib.Path(self.temporary.name)
        self.peers = ";".join(f"n{number}-127.0.0.1:{peer.free_port()}" for number in range(MEMBERS))
        self.members: dict[str, Member] = {}

    def __enter__(self) -> "Group":
        try:
            for number in range(MEMBERS):
                self.start(f"n{number}")
            self.leader()
        except BaseException:
            self.close()
            raise
        return self

    def start(self, id_: str) -> None:
        self.members[id_] = Member(self, id_)

    def leader(self) -> Member:
        """That which leads, once an append of its was acknowledged."""
        return self.leads("")[0]

    def kill(self, id_: str) -> None:
        """SIGKILL; the process is gone when this returns."""
        member = self.members.pop(id_)
        member.child.kill()
        member.close()

    def leads(self, gone: str) -> tuple[Member, float]:
        """A leader other than that, and when by `time.monotonic` an append of its was acknowledged."""
        end = time.monotonic() + ELECTION_SECONDS_MAX
        while time.monotonic() < end:  # again where each says that another leads: one of them was behind
            with ThreadPoolExecutor(len(self.members)) as pool:
                asked = [pool.submit(self._led, member, gone) for member in self.members.values()]
            if found := [each for call in asked if (each := call.result())]:
                return max(found, key=lambda each: each[1])
        raise TimeoutError("the members do not agree to a leader")

    def _led(self, member: Member, gone: str) -> tuple[Member, float] | None:
        leads = member.call("lead", ELECTION_SECONDS_MAX, gone=gone)["leads"]
        return (member, time.monotonic()) if leads else None

    @contextlib.contextmanager
    def clients(self, count: int, keys: int) -> Iterator["History"]:
        """So many clients read and write registers until the block ends; then the history is whole."""
        words = [f"clients={count}", f"keys={keys}", f"group={GROUP}", f"peers={self.peers}"]
        history = History(command(self.folder, "256m", "clients", *words))
        try:
            yield history
        except BaseException:
            history.child.kill()
            raise
        finally:
            history.end()

    def close(self) -> None:
        for id_ in list(self.members):
            self.kill(id_)
        self.temporary.cleanup()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class History:
    """What the clients of a process are told, in the order of times."""

    def __init__(self, words: Sequence[str]) -> None:
        self.lines: list[Line] = []
        self._changed = threading.Condition()
        self.child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            if line.startswith("{"):
                with self._changed:
                    self.lines.append(json.loads(line))
                    self._changed.notify()

    def wait(self, operations: int) -> None:
        """Returns once so many more were done."""
        with self._changed:
            wanted = self._done() + operations
            if not self._changed.wait_for(lambda: self._done() >= wanted, ELECTION_SECONDS_MAX):
                raise TimeoutError(f"the clients did not do {operations} operations")

    def _done(self) -> int:
        return sum(line["type"] == "ok" for line in self.lines)

    def end(self) -> None:
        """Returns when every operation that was begun has its answer, and the process has ended."""
        if self.child.stdin is not None:
            self.child.stdin.close()
        self._reading.join()
        self.child.wait()
        if self.child.stdout is not None:
            self.child.stdout.close()
        self.lines.sort(key=lambda line: line["time"])
