"""
A Docker for tests: runs a command where Docker answers, or says why it does not and runs it all the same.

    python -m tests.containers.engine COMMAND …     # e.g. pytest tests/containers

Knows: three ways to a Docker, tried in this order: the one that answers already (`DOCKER_HOST`, the usual socket, the
context of the docker command); a `dockerd` of our own, for root; Debian's packages installed first, for root, when
`QUIRE_REQUIRE` names docker.
Does not know: what the command does there.  A test asks `need("docker")` and skips when there is none.

Safety: a daemon of ours has network, mounts, processes and `/run` to itself (namespaces of the kernel), its files in a
directory drawn anew and its control groups below a name drawn anew.  It disturbs neither another Docker of this machine
nor a second run, and nothing of it is left when the command ends, however it ends: bridges, rules of iptables, mounts
and processes go with the namespaces, and this program removes directory and control groups.

The command runs inside these namespaces, so containers' addresses can be reached from it and no other network can.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.reactor import between_looks
from tests.requirements import LACKING, required

# SPDX-License-Identifier: Apache-2.0

PACKAGES = ("docker.io", "iptables", "docker-compose", "libfaketime")
PLACE = "/var/tmp"  # on a disk: images and layers would fill a file system in memory
UP_S = 60
INSIDE = "--inside"
CGROUPS = Path("/sys/fs/cgroup")


def run(command: Sequence[str]) -> int:
    """Runs the command with a Docker, and returns its exit status."""
    reason = LACKING["docker"]()
    if reason is None:
        return subprocess.call(command)
    if LACKING["dockerd"]() and "docker" in required():
        _install()
    lacking = LACKING["dockerd"]()
    if lacking is None:
        return _in_namespaces(command)
    print(f"without Docker: {reason}; {lacking}", file=sys.stderr, flush=True)
    return subprocess.call(command)


def _install() -> None:
    """Installs what is missing, where there is Debian's tool for it."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *PACKAGES]):
            subprocess.run(["apt-get", *words], env=environment, stdout=subprocess.DEVNULL, check=False)


def _in_namespaces(command: Sequence[str]) -> int:
    place = Path(tempfile.mkdtemp(prefix="quire-docker-", dir=PLACE))
    unshare = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    inside = [sys.executable, "-m", "tests.containers.engine", INSIDE, str(place), *command]
    try:
        with subprocess.Popen([*unshare, *inside]) as outer:
            # The process in the namespaces has the same terminal and hears an interrupt by itself; this one waits for
            # it, and passes on what is sent to this one alone.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, lambda *_: _terminate_children(outer.pid))
            return outer.wait()
    finally:
        _remove(place)


def _terminate_children(pid: int) -> None:
    """Passes SIGTERM on past `unshare`, which waits for its child deaf to it."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)


def _remove(place: Path) -> None:
    """Removes files and control groups of a daemon that is gone with its mounts."""
    shutil.rmtree(place, ignore_errors=True)
    for group in CGROUPS.glob(f"**/{place.name}"):
        for inner, _, _ in os.walk(group, topdown=False):
            os.rmdir(inner)


def inside(place: Path, command: Sequence[str]) -> int:
    """Runs the command beside a daemon: the first process of its own namespaces."""
    for words in (["mount", "-t", "tmpfs", "tmpfs", "/run"], ["ip", "link", "set", "lo", "up"]):
        subprocess.run(words, check=True)
    said = place / "dockerd.log"
    daemon = _start(place, said)
    environment = os.environ | {"DOCKER_HOST": f"unix://{place}/socket", "TESTCONTAINERS_RYUK_DISABLED": "true"}
    environment.pop("DOCKER_CONTEXT", None)
    if not _up(daemon, environment):
        print(f"without Docker: dockerd did not start:\n{said.read_text()[-2000:]}", file=sys.stderr, flush=True)
    # Before the child begins: a signal that the first process of a namespace has no handler for is lost.
    heard, pids = _passed_on()
    child = subprocess.Popen(command, env=environment)
    pids.append(child.pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child hears it, too, and ends as it likes
    if heard:
        os.kill(child.pid, signal.SIGTERM)
    status = _reaped(child.pid)
    if daemon.poll() is None:
        _stop(daemon, environment)
    return status


def _passed_on() -> tuple[list[int], list[int]]:
    """Passes SIGTERM on from now on; returns two lists: the signals that came, and the processes to pass it on to."""
    heard: list[int] = []
    pids: list[int] = []

    def pass_on(signum: int, _frame: object) -> None:
        heard.append(signum)
        for pid in pids:  # by number, for `Popen.terminate` would take the status that `_reaped` waits for
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)

    signal.signal(signal.SIGTERM, pass_on)
    return heard, pids


def _start(place: Path, said: Path) -> "subprocess.Popen[bytes]":
    options = {
        "--data-root": place / "data",
        "--exec-root": place / "exec",
        "--pidfile": place / "pid",
        "--host": f"unix://{place}/socket",
        "--storage-driver": "overlay2",
        "--exec-opt": "native.cgroupdriver=cgroupfs",
        "--cgroup-parent": f"/{place.name}",
        "--config-file": place / "daemon.json",
    }
    (place / "daemon.json").write_text("{}")
    words = [f"{name}={value}" for name, value in options.items()]
    with said.open("wb") as log:
        return subprocess.Popen(["dockerd", *words], stdout=log, stderr=log, start_new_session=True)


def _up(daemon: "subprocess.Popen[bytes]", environment: Mapping[str, str]) -> bool:
    """Waits until the daemon answers; False when it ended or took too long."""
    until = time.monotonic() + UP_S
    while daemon.poll() is None and time.monotonic() < until:
        if subprocess.run(["docker", "info"], env=environment, capture_output=True, check=False).returncode == 0:
            return True
        between_looks()
    return False


def _reaped(child: int) -> int:
    """Waits for the child, and for all orphans until then: the first process of a namespace inherits them."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            return os.waitstatus_to_exitcode(status)


def _stop(daemon: "subprocess.Popen[bytes]", environment: Mapping[str, str]) -> None:
    """Ends containers at once, then the daemon; what is left the kernel ends with the namespace."""
    listed = subprocess.run(["docker", "ps", "-aq"], env=environment, capture_output=True, text=True, check=False)
    if left := listed.stdout.split():
        subprocess.run(["docker", "rm", "-f", "-v", *left], env=environment, capture_output=True, check=False)
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()


def main(words: Sequence[str]) -> int:
    """Runs the command of these words."""
    if words and words[0] == INSIDE:
        status = inside(Path(words[1]), words[2:])
    elif words:
        status = run(words)
    else:
        print("usage: python -m tests.containers.engine COMMAND …", file=sys.stderr)
        return 2
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
