"""A file that a bookie, AutoRecovery and their clients read."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.properties import ConfigurationError
from quire.conf.shared_file import READERS, load_shared

# SPDX-License-Identifier: Apache-2.0

TEXT = """
metadataServiceUri=zk://a:2181/ledgers
journalDirectory=/j
ledgerDirectories=/l
bookieId=b1
autoRecoveryDaemonEnabled=true
rwRereplicateBackoffMs=7000
addEntryTimeoutSec=9
"""
WANTED = {"backoff_ms": 7000, "auto_recovery": True, "add_timeout_ms": 9000, "bookie_id": "b1"}


@pytest.mark.parametrize("model", READERS)
def test_each_reader_takes_its_own(model: type[BaseModel], tmp_path: Path) -> None:
    """None warns about the keys of the others; a key that means nothing to any of them is told."""
    path = tmp_path / "bookie.conf"
    path.write_text(TEXT + "pageSize=8192\n")
    found, warnings = load_shared(model, str(path), {})
    assert len(warnings) == 1
    assert "7 honoured. 1 ignored: pageSize (" in warnings[0]
    taken = {name: getattr(found, name) for name in WANTED if hasattr(found, name)}
    assert taken
    assert taken.items() <= WANTED.items()


@pytest.mark.parametrize("model", READERS)
def test_it_is_still_checked(model: type[BaseModel], tmp_path: Path) -> None:
    """A misspelt key is refused, with the nearest one of those that any reader has."""
    path = tmp_path / "bookie.conf"
    path.write_text(TEXT + "repairLedgerAtOnce=2\n")
    with pytest.raises(ConfigurationError, match="the nearest one is repairLedgersAtOnce"):
        load_shared(model, str(path), {})


def test_autorecovery_beside_a_bookie_has_its_own_port(tmp_path: Path) -> None:
    """The bookie's metrics port is taken where the file names no other."""
    path = tmp_path / "bookie.conf"
    path.write_text(TEXT + "prometheusStatsHttpPort=8000\n")
    own = {"BK_autoRecoveryHttpPort": "8001"}
    assert load_shared(AutoRecoveryOptions, str(path), {})[0].http_address.port == 8000
    assert load_shared(AutoRecoveryOptions, str(path), own)[0].http_address.port == 8001
    both = {**own, "BK_httpServerEnabled": "true", "BK_httpServerPort": "9000"}
    assert load_shared(BookieOptions, str(path), both)[0].http_address[:2] == ("0.0.0.0", 9000)
    assert load_shared(AutoRecoveryOptions, str(path), both)[0].http_address[:2] == ("0.0.0.0", 8001)
