"""
Containers of a test by Docker's own command: a network, containers in it by name, and nothing left of them.

Knows: how they are started, run, looked at and removed; names are drawn, and those inside are the test's.
Does not know: what runs in them.
"""

import os
import secrets
import subprocess
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

from quire.tools.local_cluster.zookeeper import jars, java
from tests.containers.cluster import SERVER
from tests.containers.image import mount_options
from tests.reactor import between_looks

# SPDX-License-Identifier: Apache-2.0

ZOOKEEPER_SERVES = "exec 3<>/dev/tcp/127.0.0.1/2181 && echo srvr >&3 && grep -q 'Zookeeper version' <&3"


def docker(*words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
    """Runs a command of Docker's; what it says goes together."""
    ended = subprocess.run(
        ["docker", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )  # fmt: skip
    assert not check or ended.returncode == 0, f"docker {' '.join(words)}\n{ended.stdout[-5000:]}"
    return ended


class Scene:
    """A network and what is in it."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.name = f"quire-scene-{secrets.token_hex(4)}"
        self._started: set[str] = set()

    def __enter__(self) -> Self:
        docker("network", "create", self.name)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._started:
            docker("rm", "--force", "--volumes", *self._started)
        docker("network", "rm", self.name)

    def _options(self, environment: Mapping[str, str]) -> list[str]:
        variables = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        return ["--network", self.name, *variables]

    def start(self, name: str, *words: str, environment: Mapping[str, str], options: Iterable[str] = ()) -> str:
        """Starts a container that the others find by its name, with these options of Docker's; its name for Docker."""
        made = f"{self.name}-{name}"
        self._started.add(made)
        named = ["--name", made, "--hostname", name, "--network-alias", name]
        docker("run", "--detach", *named, *self._options(environment), *options, *words)
        return made

    def shell(self, script: str, environment: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
        """Runs a script in a new container, as `sh -c`, and returns how it ended."""
        return docker(
            "run", "--rm", *self._options(environment), "--entrypoint", "sh", self.image, "-c", script, check=False
        )

    def zookeeper(self, name: str, image: str) -> None:
        """Starts a ZooKeeper of pyspark's jars, in the image of this machine's programs, and waits until it serves."""
        server = SERVER.format(java=java(), jars=os.pathsep.join(map(str, jars())))
        made = self.start(name, image, "sh", "-c", server, environment={}, options=mount_options())
        self.until(made, lambda: docker("exec", made, "bash", "-c", ZOOKEEPER_SERVES, check=False).returncode == 0)

    def until(self, made: str, holds: Callable[[], bool]) -> None:
        """Waits until it holds; fails with the container's log when that ends first."""
        while not holds():
            running = docker("inspect", "--format", "{{.State.Running}}", made).stdout.strip()
            assert running == "true", docker("logs", made).stdout[-5000:]
            between_looks()

    def healthy(self, made: str, path: str = "/api/v1/bookie/is_ready") -> None:
        """Waits until the process of a container answers well."""
        self.until(made, lambda: docker("exec", made, "healthcheck", path, check=False).returncode == 0)
