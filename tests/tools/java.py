"""
An archive of the classes of a ZooKeeper server, from which a Java takes them loaded and checked: a server that a test
starts so takes half the CPU time, and serves after half the time.

    python -m tests.tools.java      makes it, once for a Java and its jars

Knows: where the archive is, and the option that names it.  A Java that can't use it starts as ever.
Does not know: what the server does.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

from quire.tools.local_cluster.zookeeper import MAIN, ZooKeeper, ZooKeeperMissing, jars, java

# SPDX-License-Identifier: Apache-2.0

OPTIONS = ["-XX:+UseSerialGC", "-Xmx128m"]  # as the servers have them: objects are archived as these lay them out


@cache
def archive() -> Path | None:
    """Where it is, made or not; None if there is no Java or no jar."""
    try:
        files = [Path(java()).resolve(), *jars()]
    except ZooKeeperMissing:
        return None
    known = "\n".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
    return Path(sys.prefix, f"zookeeper-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa")


def sharing(command: object) -> object:
    """The command line of a process, with the archive if it starts a server and there is one."""
    if not isinstance(command, list) or MAIN not in command:
        return command
    place = archive()
    return with_option(command, f"-XX:SharedArchiveFile={place}") if place is not None and place.exists() else command


def with_option(command: list[str], option: str) -> list[str]:
    """The command line of a server with one more option of its Java."""
    at = command.index("-cp")
    return [*command[:at], option, *command[at:]]


class Listing(subprocess.Popen[bytes]):
    """Has a server write down which classes it loads, in the file `LIST`."""

    def __init__(self, args: list[str], **named: object) -> None:
        super().__init__(with_option(args, f"-XX:DumpLoadedClassList={os.environ['LIST']}"), **named)  # type: ignore[call-overload]


def make(place: Path) -> None:
    """Makes the archive of what two servers load: one that takes everybody, and one that asks who comes."""
    from tests.metadata.zk.guarded import Guarded, acls

    with tempfile.TemporaryDirectory() as made:
        lists = [Path(made, "plain"), Path(made, "guarded")]
        with patch.object(subprocess, "Popen", Listing):
            with patch.dict(os.environ, LIST=str(lists[0])), ZooKeeper(Path(made, "open")):
                pass
            with patch.dict(os.environ, LIST=str(lists[1])), Guarded(Path(made, "closed")) as guarded:
                acls(guarded, "/")
        lines = [line for each in lists for line in each.read_text().splitlines()]
        names = dict.fromkeys(line.partition(" id: ")[0] for line in lines if not line.startswith("#"))
        Path(made, "classes").write_text("".join(f"{name}\n" for name in names))
        fresh = place.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [
                java(),
                *OPTIONS,
                "-Xshare:dump",
                f"-XX:SharedArchiveFile={fresh}",
                f"-XX:SharedClassListFile={made}/classes",
                "-cp",
                os.pathsep.join(map(str, jars())),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(f"no archive of ZooKeeper's classes, so tests take longer: {done.stdout}{done.stderr}")
        else:
            for old in place.parent.glob("zookeeper-*.jsa"):
                old.unlink()
            os.replace(fresh, place)


if __name__ == "__main__":
    asked = archive()
    if asked is not None and not asked.exists():
        make(asked)
