"""The storages that a bookie may open have what it asks of them."""

from quire.bookie.server.contract import LedgerStorage
from quire.bookie.server.copies import CopyStorage
from tests.bookie.fakes.disk import Bookie
from tests.bookie.fakes.storage import FakeStorage

# SPDX-License-Identifier: Apache-2.0


def test_a_storage_has_what_requests_and_copies_ask_for() -> None:
    """The fake one keeps up with the real one."""
    parts = (*LedgerStorage.__mro__, *CopyStorage.__mro__)
    asked = {name for part in parts for name in vars(part) if not name.startswith("_")}
    assert {"read", "held"} <= asked
    for storage in (Bookie().storage, FakeStorage()):
        assert asked <= set(dir(storage))
