"""
The machine that figures were measured on: cores, memory, kernel, disk, versions.

Knows: how to ask for them, and how long this disk takes for a sync.  Does not know: what is measured.
"""

import os
import pathlib
import platform
import re
import subprocess
import tempfile
import time

from quire.conf.interpreter import build

# SPDX-License-Identifier: Apache-2.0

SYNCS = 500
BLOCK = 4096


def machine(directory: str | None, java_at_hand: bool) -> dict[str, object]:
    """A name for each fact, as the page shows it."""
    cpu = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    p50, p99 = sync_ms(directory)
    busy = os.getloadavg()[0]
    facts: dict[str, object] = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": f"{os.cpu_count()} of {cpu[0] if cpu else platform.machine()}",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 1e9:.1f} GB",
        "kernel": platform.release(),
        "fdatasync": f"p50 {p50:.2f} ms, p99 {p99:.2f} ms ({BLOCK >> 10} KiB into a file that is there)",
        "load before": f"{busy:.1f} (1.0 keeps a core busy: not all of the machine was ours)"
        if busy > 1
        else f"{busy:.1f}",
        "python": build().words,
    }
    if java_at_hand:
        from tests.interop import peer

        said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
        facts |= {"java": said.split('"')[1], "bookkeeper": peer.version()}
    return facts


def sync_ms(directory: str | None) -> tuple[float, float]:
    """p50 and p99 of a write and fdatasync into a file that was written before."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix="quire-sync-") as file:
        number = file.fileno()
        os.pwrite(number, bytes(BLOCK * SYNCS), 0)
        os.fsync(number)
        taken = []
        for place in range(SYNCS):
            began = time.perf_counter()
            os.pwrite(number, b"x" * BLOCK, place * BLOCK)
            os.fdatasync(number)
            taken.append((time.perf_counter() - began) * 1e3)
    taken.sort()
    return taken[SYNCS // 2], taken[SYNCS * 99 // 100]
