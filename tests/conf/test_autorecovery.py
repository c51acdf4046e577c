"""
The options of AutoRecovery: documented, with BookKeeper's keys and defaults, in a file that a bookie and a client may
read too.
"""

from pathlib import Path

import pytest
from pydantic import BaseModel

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.known_keys import SERVER
from quire.conf.options import key_of
from quire.conf.properties import ConfigurationError, load, options, parse
from quire.conf.samples import DIRECTORY, autorecovery_conf
from quire.metadata.auditing import DELAY_MAX_S

# SPDX-License-Identifier: Apache-2.0

APACHES_DEFAULTS = {
    "lostBookieRecoveryDelay": 0,
    "auditorPeriodicBookieCheckInterval": 86400,
    "auditorPeriodicCheckInterval": 604800,
    "auditorPeriodicPlacementPolicyCheckInterval": 0,
    "auditorReplicasCheckInterval": 0,
    "openLedgerRereplicationGracePeriod": 30000,
    "rwRereplicateBackoffMs": 5000,
    "lockReleaseOfFailedLedgerGracePeriod": 300000,
    "replicationRateByBytes": -1,
    "zkReplicationTaskRateLimit": 0,
    "repairedPlacementPolicyNotAdheringBookieEnabled": False,
    "storeSystemTimeAsLedgerUnderreplicatedMarkTime": True,
}
SHARED_FILE = """
metadataServiceUri=zk://a:2181/ledgers
journalDirectory=/j
ledgerDirectories=/l
bookieId=b1
autoRecoveryDaemonEnabled=true
rwRereplicateBackoffMs=7000
addEntryTimeoutSec=9
"""


def test_defaults_are_apaches() -> None:
    """Each key that Apache's AutoRecovery has stands for the value that it has there."""
    field_of = {key: field for field in AutoRecoveryOptions.model_fields.values() for key in key_of(field)["names"]}
    for key, default in APACHES_DEFAULTS.items():
        assert field_of[key].default == default, key


def test_keys_are_bookkeepers_or_say_that_they_are_ours() -> None:
    """A key that Apache BookKeeper does not have is described as our own."""
    for field in AutoRecoveryOptions.model_fields.values():
        ours = [name for name in key_of(field)["names"] if name not in SERVER]
        assert bool(ours) == ("our own key" in (field.description or "")), ours


def test_units_are_in_the_names() -> None:
    """A field ends in the unit of its key."""
    ends = {"bytes": "bytes_per_second", "ms": "_ms", "s": "_s"}
    for name, field in AutoRecoveryOptions.model_fields.items():
        unit = key_of(field)["unit"]
        assert not unit or name.endswith(ends[unit]), name


def test_the_sample_works_as_it_is() -> None:
    """It loads without a warning, and its comments are the defaults."""
    found, warnings = load(AutoRecoveryOptions, str(DIRECTORY / "autorecovery.conf"), {})
    loud = "\n".join(
        line.removeprefix("#") if line.startswith("#") and not line.startswith("# ") else line
        for line in autorecovery_conf().splitlines()
    )
    assert options(AutoRecoveryOptions, parse(loud, "f"))[0] == found
    assert warnings == []


def test_the_longest_delay_is_what_the_store_takes() -> None:
    """A delay that the options allow can be written into the metadata."""
    most = AutoRecoveryOptions(metadata_uri="memory://a", lost_bookie_recovery_delay_s=DELAY_MAX_S)
    assert most.lost_bookie_recovery_delay_s == DELAY_MAX_S
    with pytest.raises(ValueError, match="lost_bookie_recovery_delay_s"):
        AutoRecoveryOptions(metadata_uri="memory://a", lost_bookie_recovery_delay_s=DELAY_MAX_S + 1)


@pytest.mark.parametrize("model", [AutoRecoveryOptions, BookieOptions, ClientOptions])
def test_one_file_serves_bookie_autorecovery_and_client(model: type[BaseModel], tmp_path: Path) -> None:
    """Each of the three takes its own keys of it, and none warns about those of the others."""
    path = tmp_path / "bookie.conf"
    path.write_text(SHARED_FILE)
    beside = (AutoRecoveryOptions, BookieOptions, ClientOptions)
    found, warnings = load(model, str(path), {}, beside=beside)
    assert warnings == []
    wanted = {"backoff_ms": 7000, "auto_recovery": True, "add_timeout_ms": 9000, "bookie_id": "b1"}
    assert {name: getattr(found, name) for name in wanted if hasattr(found, name)}.items() <= wanted.items()


def test_a_shared_file_is_still_checked(tmp_path: Path) -> None:
    """A misspelt key is refused, with the nearest one of those that any reader of the file has."""
    path = tmp_path / "bookie.conf"
    path.write_text(SHARED_FILE + "repairLedgerAtOnce=2\n")
    with pytest.raises(ConfigurationError, match="the nearest one is repairLedgersAtOnce"):
        load(BookieOptions, str(path), {}, beside=(AutoRecoveryOptions,))


def test_a_process_beside_a_bookie_has_its_own_port(tmp_path: Path) -> None:
    """The bookie's metrics port is taken where the file names no other."""
    path = tmp_path / "bookie.conf"
    path.write_text(SHARED_FILE + "prometheusStatsHttpPort=8000\n")
    assert load(AutoRecoveryOptions, str(path), {}, beside=(BookieOptions, ClientOptions))[0].metrics_port == 8000
    path.write_text(path.read_text() + "autoRecoveryHttpPort=8001\n")
    beside = (AutoRecoveryOptions, BookieOptions, ClientOptions)
    assert load(AutoRecoveryOptions, str(path), {}, beside=beside)[0].metrics_port == 8001
    assert load(BookieOptions, str(path), {}, beside=beside)[0].metrics_port == 8000
