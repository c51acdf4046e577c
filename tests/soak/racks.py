"""
The racks of a soak: network namespaces, whose cable can be pulled, on one bridge; without root, names only.

Knows: the addresses of the racks, how a process is started in one, and how one is cut off.
Does not know: what runs there.

Safety: the program has network, mounts and processes to itself (`begin`), so that of bridges, namespaces and processes
nothing is left when it ends, however it ends.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import NoReturn

# SPDX-License-Identifier: Apache-2.0

INSIDE = "SOAK_INSIDE"  # in the environment of a program that has a network to itself
NETWORK = "10.77.0"
TOOLS = ("unshare", "ip")


def begin(command: Sequence[str]) -> NoReturn:
    """Becomes this program, with network, mounts and processes of its own where these can be had."""
    namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() == 0 and all(map(shutil.which, TOOLS)):
        tried = subprocess.run([*namespaces, "ip", "link", "set", "lo", "up"], capture_output=True, check=False)
        if tried.returncode == 0:
            os.environ[INSIDE] = "1"
            os.execvp(namespaces[0], [*namespaces, *command])
    os.execv(command[0], command)


class Racks:
    """Names alone, all on the loopback address: a rack can't be cut off."""

    def __init__(self, count: int) -> None:
        self.count = count

    def address(self, _rack: int) -> str:
        """Where what is in the rack listens."""
        return "127.0.0.1"

    def prefix(self, _rack: int) -> list[str]:
        """What stands before the command of a process in the rack."""
        return []


class Namespaces(Racks):
    """A namespace for each rack, in a program that has a network of its own."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        for words in (
            ("mount", "-t", "tmpfs", "tmpfs", "/run"),  # where `ip` keeps namespaces
            ("ip", "link", "set", "lo", "up"),
            ("ip", "link", "add", "bridge", "type", "bridge"),
            ("ip", "address", "add", f"{NETWORK}.254/24", "dev", "bridge"),
            ("ip", "link", "set", "bridge", "up"),
        ):
            subprocess.run(words, check=True)
        for rack in range(count):
            name = self._name(rack)
            for line in (
                f"netns add {name}",
                f"link add {name} type veth peer name eth0 netns {name}",
                f"link set {name} master bridge up",
                f"-n {name} link set lo up",
                f"-n {name} address add {self.address(rack)}/24 dev eth0",
                f"-n {name} link set eth0 up",
            ):
                subprocess.run(["ip", *line.split()], check=True)

    def address(self, rack: int) -> str:
        return f"{NETWORK}.{rack + 1}"

    def prefix(self, rack: int) -> list[str]:
        return ["ip", "netns", "exec", self._name(rack)]

    def cut(self, rack: int) -> None:
        """Pulls the rack's cable: what is under way is lost, and nobody is told."""
        self._set(rack, "down")

    def join(self, rack: int) -> None:
        """Plugs it in again."""
        self._set(rack, "up")

    def _set(self, rack: int, state: str) -> None:
        subprocess.run(["ip", "link", "set", self._name(rack), state], check=True)

    def _name(self, rack: int) -> str:
        return f"rack{rack}"


def racks(count: int) -> Racks:
    """Namespaces where they can be had."""
    return Namespaces(count) if os.environ.get(INSIDE) else Racks(count)
