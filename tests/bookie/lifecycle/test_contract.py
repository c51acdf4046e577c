"""The storages that a bookie may open have what it asks of them."""

from quire.bookie.lifecycle.contract import OpenableStorage
from tests.bookie.fakes.disk import Bookie
from tests.bookie.fakes.storage import FakeStorage

# SPDX-License-Identifier: Apache-2.0


def test_a_storage_has_what_the_bookie_and_its_parts_ask_for() -> None:
    """What requests, copies and the guard need is part of it; the fake one keeps up with the real one."""
    asked = {name for part in OpenableStorage.__mro__ for name in vars(part) if not name.startswith("_")}
    assert {"start", "read", "held", "take_arrived"} <= asked
    for storage in (Bookie().storage, FakeStorage()):
        assert asked <= set(dir(storage))
