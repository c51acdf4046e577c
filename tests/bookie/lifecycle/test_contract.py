"""The real storage as a bookie opens it."""

from typing import Any

import pytest
from twisted.internet.task import Clock

from quire.bookie.lifecycle import contract
from tests.bookie.fakes.wires import options

# SPDX-License-Identifier: Apache-2.0


def test_how_many_files_may_be_open_reaches_the_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both numbers or none: without them the storage has its own."""
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr(contract, "Storage", lambda *_, **more: opened.append(more))
    clock, files = Clock(), object()
    contract.open_storage(options(), clock, files)  # type: ignore[arg-type]
    contract.open_storage(options(), clock, files, tables_open_max=20, logs_open_max=8)  # type: ignore[arg-type]
    assert opened[0] == {}
    assert (opened[1]["open_rows"].keywords, opened[1]["logs_open_max"]) == ({"files_max": 20}, 8)
