"""
The addresses of this machine that an option can mean by a name.

Knows: how Linux is asked.  Does not know: options.
"""

import fcntl
import socket
import struct

# SPDX-License-Identifier: Apache-2.0

SIOCGIFADDR = 0x8915
NAME_BYTES_MAX = 15


def interface_address(name: str) -> str | None:
    """The IPv4 address of a network interface; None when there is no such interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:NAME_BYTES_MAX]))
        except OSError:
            return None
    return socket.inet_ntoa(found[20:24])


def own_address() -> str:
    """The address of this machine's own name; `OSError` when it has none."""
    return socket.gethostbyname(socket.gethostname())


def own_name(short: bool) -> str:
    """The name of this machine, with its domain unless `short`."""
    name = socket.getfqdn()
    return name.split(".", maxsplit=1)[0] if short else name
