"""
Store directories of `tests/messages/vectors`, unpacked for a test, and what the peer answered about them.

Knows: the nine archives and the four JSON files.
Does not know: what is in the files of a directory: `tests.messages.reference` reads them.
"""

# SPDX-License-Identifier: Apache-2.0

import json
import pathlib
import tarfile
from typing import Any

VECTORS = pathlib.Path(__file__).parent / "vectors"

PLAIN = ("plain-clean", "plain-killed")
UPGRADED = ("upgraded-clean", "upgraded-killed")
DLEDGER = ("dledger-killed-leader", "dledger-new-leader")
BROKERS = (*PLAIN, *UPGRADED, *DLEDGER)
STORE_MODULE = ("records", "groups-and-fillers", "crc-property")
ALL = (*BROKERS, *STORE_MODULE)
FILE_BYTES = 65536


def unpack(name: str, into: pathlib.Path) -> pathlib.Path:
    """The directory of this archive, sparse as it was; what is there already stays."""
    if not (into / name).exists():
        with tarfile.open(VECTORS / f"{name}.tar.xz") as archive:
            archive.extractall(into, filter="data")
    return into / name


def answers(name: str) -> dict[str, Any]:
    """What the peer said of `plain`, `upgraded`, `dledger` or `store`."""
    found: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text())
    return found
