r"""
How ledgers are arranged in a tree of nodes: the LAYOUT text, and ids to paths and back (metadata-rules.md 1.2, 2.1,
2.2, 3.3).

    layout            id                path below the root
    flat              any               L%010d
    hierarchical      below 2^31 - 1    dd/dddd/Ldddd          (%010d cut 2-4-4)
                      from 2^31 - 1 on  ddd/dddd/dddd/dddd/Ldddd  (%019d cut 3-4-4-4-4)
    longhierarchical  any               ddd/dddd/dddd/dddd/Ldddd
    apache (etcd)     any               ledgers/00000000-0000-0000-hhhh-hhhhhhhhhhhh  (a UUID, its lower half the id)

LAYOUT is "2\n<Java class>:1" (in etcd :0), no newline at its end.  The class names are the protocol: Apache's bookies
compare them.

Knows: names.  Does not know: trees.

Safety: a path that isn't exactly what its id maps to belongs to no ledger (one under the wrong form would be invisible
to the garbage collection of every Apache bookie, which then deletes its entries).
"""

import re
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

from quire.protocol.errors import MetaStore

# SPDX-License-Identifier: Apache-2.0

SHORT_ID_MAX = (1 << 31) - 2  # the highest id in the short form
SPECIAL = frozenset({"available", "cookies", "LAYOUT", "INSTANCEID", "underreplication", "idgen", "idgen-long"})
DIGITS = re.compile("[0-9]{1,19}")
UUID_OF_ID = re.compile("ledgers/00000000-0000-0000-([0-7][0-9a-f]{3})-([0-9a-f]{12})")
HEALTH_CHECK_SWITCH = "disableHealthCheck"
UUIDS, BUCKETS = "ledgers", "buckets"  # the directories of ledgers and of counters in Apache's layout of etcd


class Layout(Enum):
    """The value is the short name, as in `zk+hierarchical://` and in a LAYOUT of format 1."""

    FLAT = "flat"
    HIERARCHICAL = "hierarchical"
    LONG = "longhierarchical"
    APACHE_ETCD = "apache"  # of Apache's driver for etcd, and there only

    @property
    def java_class(self) -> str:
        """The class that Apache's bookies name in LAYOUT."""
        return CLASSES[self]

    @property
    def text(self) -> bytes:
        """The text of LAYOUT."""
        return f"2\n{self.java_class}:{self.manager_version}".encode()

    @property
    def manager_version(self) -> str:
        """The version of that class."""
        return "0" if self is Layout.APACHE_ETCD else "1"


CLASSES: dict[Layout, str] = {
    Layout.FLAT: "org.apache.bookkeeper.meta.FlatLedgerManagerFactory",
    Layout.HIERARCHICAL: "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory",
    Layout.LONG: "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory",
    Layout.APACHE_ETCD: "org.apache.bookkeeper.metadata.etcd.EtcdLedgerManagerFactory",
}
BY_CLASS = {layout.java_class: layout for layout in Layout}


def parse_layout(data: bytes, wanted: Layout | None = None) -> Layout:
    """
    The layout that a LAYOUT says; `MetaStore` when it can't be served, or isn't the one that the URI insists on.
    """
    lines = data.decode("utf-8", "replace").split("\n")
    name, colon, manager_version = (lines[1] if len(lines) > 1 else "").rpartition(":")
    if lines[0] not in {"1", "2"} or not colon or ":" in name:
        raise MetaStore(f"the cluster's LAYOUT can't be read: {data[:200]!r}")
    known = Layout.APACHE_ETCD if name == Layout.APACHE_ETCD.java_class else Layout.HIERARCHICAL
    if manager_version != known.manager_version:
        raise MetaStore(
            f"the cluster's LAYOUT has the manager version {manager_version}, and only {known.manager_version} is known"
        )
    if lines[0] == "1":
        found = {Layout.FLAT.value: Layout.FLAT, Layout.HIERARCHICAL.value: Layout.HIERARCHICAL}.get(name)
    else:
        found = BY_CLASS.get(name)
    if found is None:
        raise MetaStore(
            f"the cluster's LAYOUT is {name}, which is not supported (only "
            f"{', '.join(layout.value for layout in Layout if layout is not Layout.APACHE_ETCD)})"
        )
    if wanted is not None and wanted is not found:
        raise MetaStore(f"the metadata URI insists on {wanted.value}, but the cluster's LAYOUT is {found.value}")
    if wanted is None and found is Layout.APACHE_ETCD:
        raise MetaStore("the cluster's LAYOUT is that of Apache's etcd, which only a URI etcd+apache://... opens")
    return found


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """Ids to paths and back, for one root (like "/ledgers") and layout."""

    root: str
    layout: Layout

    def path_of(self, ledger: int) -> str:
        """The node of a ledger; ids are checked elsewhere."""
        if self.layout is Layout.FLAT:
            return f"{self.root}/L{ledger:010d}"
        if self.layout is Layout.APACHE_ETCD:
            return f"{self.root}/{UUIDS}/{UUID(int=ledger)}"
        if self.layout is Layout.HIERARCHICAL and ledger <= SHORT_ID_MAX:
            digits = f"{ledger:010d}"
            return f"{self.root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
        digits = f"{ledger:019d}"
        return f"{self.root}/{digits[:3]}/{digits[3:7]}/{digits[7:11]}/{digits[11:15]}/L{digits[15:]}"

    def id_of(self, path: str) -> int | None:
        """The ledger at a path; None if the path is no ledger's."""
        below = path.removeprefix(f"{self.root}/")
        if self.layout is Layout.APACHE_ETCD:
            half = UUID_OF_ID.fullmatch(below)
            return int(half.group(1) + half.group(2), 16) if half else None
        digits = below.replace("/", "").replace("L", "")
        if below == path or not DIGITS.fullmatch(digits):
            return None
        ledger = int(digits)
        return ledger if self.path_of(ledger) == path else None

    def parents(self, ledger: int) -> list[str]:
        """The inner nodes above a ledger and below the root, the lowest first."""
        if self.layout is Layout.APACHE_ETCD:
            return []  # one directory, as old as the cluster
        path = self.path_of(ledger)
        found = []
        while (path := path.rpartition("/")[0]) != self.root:
            found.append(path)
        return found

    def levels(self) -> tuple[tuple[str, ...], ...]:
        """
        The trees to walk, in ascending order of ids: for each, the patterns of the names from the root down.
        """
        short = (r"\d{2}", r"\d{4}", r"L\d{4}")
        long = (r"\d{3}", r"\d{4}", r"\d{4}", r"\d{4}", r"L\d{4}")
        if self.layout is Layout.FLAT:
            return ((r"L\d{10,19}",),)
        if self.layout is Layout.APACHE_ETCD:
            return ()
        return (short, long) if self.layout is Layout.HIERARCHICAL else (long,)

    def is_ledger_top(self, name: str) -> bool:
        """True if a child of the root belongs to the ledgers' trees."""
        return any(re.fullmatch(names[0], name, re.ASCII) for names in self.levels())


def is_special(name: str) -> bool:
    """True if a child of the root is one of the cluster's own nodes (never a ledger)."""
    return name in SPECIAL or name.startswith("ID-")


def records_root(root: str) -> str:
    """Where the records of the cluster with that root are: beside it, so that nothing lists them as ledgers."""
    return f"{root}-quire"
