"""Settings of a log and options of a process: defaults, contradictions, and what a later version wrote."""

import re

import pytest

from quire.conf.extras import installs
from quire.conf.log import LogOptions, LogSettings
from quire.protocol.log_errors import LogDamaged

# SPDX-License-Identifier: Apache-2.0


def test_defaults():
    """Those of docs/logs.md."""
    made = LogSettings.made()
    assert (made.ensemble, made.write, made.ack, made.digest) == (3, 3, 2, "CRC32C")
    assert (made.roll_records, made.roll_bytes, made.roll_age_ms) == (1 << 24, 256 << 20, 4 * 3600_000)
    assert (made.publish, made.lease_ms, made.dedup) == (True, 0, False)
    assert LogOptions().window_bytes == 64 << 20


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ack": 4}, "quorums must be ack"),
        ({"write": 4}, "quorums must be ack"),
        ({"roll_bytes": 0}, "roll_bytes"),
        ({"digest": "DUMMY"}, "digest"),
        ({"lease_ms": 100}, "publish"),
        ({"rolls": 1}, "no setting rolls"),
        ({"quota": "wait"}, "quota"),
    ],
)
def test_settings_that_can_not_be(settings, said):
    """The error names the setting."""
    with pytest.raises(ValueError, match=said):
        LogSettings.made(**settings)


def test_a_change_names_what_it_changes():
    """Only what is another value; it is checked together with the rest, which it may mend."""
    stored = {**LogSettings.made(ensemble=5).model_dump(), "later": 1}
    assert LogSettings.changed(stored, ensemble=5, ack=3) == {"ack": 3}
    with pytest.raises(ValueError, match="quorums"):
        LogSettings.changed(stored, write=6)
    with pytest.raises(ValueError, match="no setting"):
        LogSettings.changed(stored, unknown=1)
    LogSettings.check(stored)
    wrong = {**stored, "write": 2, "ack": 3}
    with pytest.raises(ValueError, match="quorums"):
        LogSettings.check(wrong)
    with pytest.raises(ValueError, match="quorums"):
        LogSettings.changed(wrong, roll_bytes=9)
    assert LogSettings.changed(wrong, ack=2, write=2) == {"ack": 2}


def test_stored_settings():
    """Members of a later version are kept; what can't be understood is damage."""
    stored = {**LogSettings.made().model_dump(), "later": 1}
    assert LogSettings.of(stored).model_dump() == stored
    for wrong in ({"ack": "x"}, [], None):
        with pytest.raises(LogDamaged):
            LogSettings.of(wrong)


def test_the_password_is_not_shown():
    """Neither in the repr nor in an error."""
    assert "secret" not in repr(LogOptions(password=b"secret"))
    with pytest.raises(ValueError, match="batch_bytes") as raised:
        LogOptions(password=b"secret", batch_bytes=0)
    assert "secret" not in str(raised.value)


def test_what_is_not_installed_is_refused(monkeypatch):
    """A log that nobody here could write is not made; others of its settings may be changed from here."""
    stored = LogSettings.made(compression="zstd").model_dump()
    monkeypatch.setattr("quire.conf.log.find_spec", lambda _name: None)
    with pytest.raises(ValueError, match="zstd is not installed here: " + re.escape(installs("zstd"))):
        LogSettings.made(compression="zstd")
    with pytest.raises(ValueError, match="zstd is not installed"):
        LogSettings.changed(LogSettings.made().model_dump(), compression="zstd")
    assert LogSettings.changed(stored, roll_bytes=9) == {"roll_bytes": 9}
    assert LogSettings.of(stored).compression == "zstd"
