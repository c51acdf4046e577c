"""The directories of a bookie on a real disk and a cluster in memory, for what is checked at a start."""

import shutil
from pathlib import Path

from twisted.internet.defer import Deferred

from quire.bookie.lifecycle.start_check import check, cluster_of, lost_directories
from quire.conf.bookie import BookieOptions
from quire.metadata.memory.cluster import MemoryCluster
from quire.metadata.memory.store import MemoryStore
from quire.metadata.tree_store import MetadataStore
from quire.rows.files import Files
from tests.clock import Clock

# SPDX-License-Identifier: Apache-2.0

CLUSTER = "48a562a9-60b0-4d14-a6c2-f598c2df360b"


def made(**more: object) -> BookieOptions:
    return BookieOptions.model_validate(
        {"metadata_uri": "memory://a", "journal_directories": ("/j",), "ledger_directories": ("/l",), **more}
    )


class Home:
    """One bookie's; `check` is a start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.files = Files()
        self.incarnation = ""
        self.store: MetadataStore = MemoryStore(self.clock, MemoryCluster("home"))
        self.cluster: str | None = CLUSTER
        self.wait(self.store.init_cluster())

    def options(self, **more: object) -> BookieOptions:
        names = {"journal_directories": ("j",), "ledger_directories": ("l1", "l2"), **more}
        paths = {
            key: tuple(str(self.path / name) for name in value) if key.endswith("directories") else value
            for key, value in names.items()
        }  # type: ignore[attr-defined]
        return made(**paths)

    def wait(self, deferred: "Deferred[object]") -> object:
        found: list[object] = []
        deferred.addBoth(found.append)
        while not found:
            self.clock.advance(0.01)
        result = found[0]
        if hasattr(result, "raiseException"):
            result.raiseException()
        return result

    def check(self, bookie: str = "b:1", **more: object) -> bool:
        """Whether it is new; `incarnation` is that of its directories then."""
        checking = Deferred.fromCoroutine(check(self.store, self.options(**more), bookie, self.cluster, self.files))
        is_new, cookie = self.wait(checking)  # type: ignore[misc, arg-type]
        self.incarnation = cookie.incarnation
        return bool(is_new)

    def find_cluster(self) -> str:
        return str(self.wait(Deferred.fromCoroutine(cluster_of(self.store, self.options(), self.files))))

    def lost(self, bookie: str = "b:1", **more: object) -> list[str]:
        return list(
            self.wait(
                Deferred.fromCoroutine(
                    lost_directories(self.store, self.options(**more), bookie, self.cluster, self.files)
                )
            )
        )

    def empty(self, directory: str) -> None:
        """A new disk in the place of the old one."""
        shutil.rmtree(self.path / directory)

    def version(self, directory: str) -> Path:
        return self.path / directory / "current" / "VERSION"

    def stored(self, bookie: str = "b:1") -> bytes:
        return self.wait(self.store.read_cookie(bookie)).value  # type: ignore[no-any-return, attr-defined, arg-type]
