"""
One client for each cluster in a process: Spark's Python workers live on between tasks.

Knows: the background reactor, that neither it nor a client survives a fork, and how a task's process keeps its memory.
Does not know: what is asked of a cluster.
"""

import ctypes
import gc
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from quire.client.api import Client
from quire.client.api import connect as open_cluster
from quire.client.threads import pulled, reactor_thread
from quire.conf.client import from_conf_file
from quire.conf.log import LogOptions
from quire.conf.pipeline import Secret
from quire.log.api import Logs
from quire.pipeline.copies.reading import Offloaded, openers

# SPDX-License-Identifier: Apache-2.0

T = TypeVar("T")

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
MAPPED_BYTES_MIN = 32 << 20  # what is smaller comes from the heap; glibc takes no more than this
KEPT_BYTES = 64 << 20  # free memory at the end of the heap that stays


class Cluster:
    """
    A cluster's ledgers and logs, with ordinary calls around their asynchronous ones, by the client's configuration
    file of this machine, as for the commands.  `offload`: where copies are of ledgers that bookies no longer have.
    """

    def __init__(self, uri: str, offload: str | None = None) -> None:
        options, excess = from_conf_file()
        for text in excess:
            warnings.warn(text, stacklevel=2)
        self.uri = uri
        self.copies = None if offload is None else Offloaded(offload)
        self._thread = reactor_thread()
        self.client: Client = self._thread.wait(
            lambda: open_cluster(self._thread.reactor, uri, options, self.copies), Client.close
        )
        self.logs = Logs(self.client, LogOptions(openers=openers()))

    def new_id(self) -> str:
        """A random one."""
        return f"{self.client.random.getrandbits(128):032x}"

    def wait(self, work: Callable[[], Awaitable[T]]) -> T:
        """Waits for an operation and returns its result."""
        return self._thread.wait(work)

    def each(self, begin: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yields what an asynchronous iterator does, the next one fetched while one is used."""
        return pulled(self._thread, begin)


def password(given: Secret) -> bytes:
    """Reads the password of the ledgers.  `OSError` when its file can't be read."""
    if given.password_file is not None:
        with open(given.password_file, "rb") as file:
            return file.read().rstrip(b"\r\n")
    return b"" if given.password is None else given.password.get_secret_value()


_lock = threading.Lock()
_clusters: dict[tuple[int, str, str | None], Cluster] = {}


def is_task() -> bool:
    """True in a process that Spark has for tasks; Spark is not loaded for the question."""
    spark = sys.modules.get("quire.pipeline.spark")
    return spark is not None and spark.TaskContext.get() is not None


def keep_memory() -> None:
    """
    Has this process keep what it frees for what comes next.  A batch's large pieces are mapped one by one otherwise,
    and the kernel's fresh pages for them are a quarter of a task's CPU time with records of 1 KiB.  Modules and clients
    stay for good: Spark collects garbage after each task, and looks through these 100,000 objects no more (60 ms).
    """
    gc.freeze()
    with suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def cluster(uri: str, offload: str | None = None) -> Cluster:
    """
    Returns this process's client of a cluster; a process of Spark's for tasks keeps its memory from then on.
    `ValueError` for a bad URI or configuration file; `MetaStore`.
    """
    key = os.getpid(), uri, offload
    with _lock:
        if key not in _clusters:
            _clusters[key] = Cluster(uri, offload)
            if is_task():
                keep_memory()
        return _clusters[key]


def _in_child() -> None:
    global _lock  # noqa: PLW0603  # another thread may have held it
    _lock = threading.Lock()
    _clusters.clear()


os.register_at_fork(after_in_child=_in_child)
