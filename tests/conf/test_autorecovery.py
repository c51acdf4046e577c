"""
The options of AutoRecovery: documented, with BookKeeper's keys and defaults.
"""

import pytest

from quire.conf.autorecovery import AutoRecoveryOptions
from quire.conf.known_keys import SERVER
from quire.conf.options import key_of
from quire.conf.properties import load, options, parse
from quire.conf.sample_files import DIRECTORY, text_of
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
        for line in text_of("autorecovery.conf").splitlines()
    )
    assert options(AutoRecoveryOptions, parse(loud, "f"))[0] == found
    assert warnings == []


def test_the_longest_delay_is_what_the_store_takes() -> None:
    """A delay that the options allow can be written into the metadata."""
    most = AutoRecoveryOptions(metadata_uri="memory://a", lost_bookie_recovery_delay_s=DELAY_MAX_S)
    assert most.lost_bookie_recovery_delay_s == DELAY_MAX_S
    with pytest.raises(ValueError, match="lost_bookie_recovery_delay_s"):
        AutoRecoveryOptions(metadata_uri="memory://a", lost_bookie_recovery_delay_s=DELAY_MAX_S + 1)
