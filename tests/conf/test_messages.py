"""Settings and options of message stores."""

import pytest

from quire.conf.messages import MessageOptions, StoreSettings, address_text, parsed_address

# SPDX-License-Identifier: Apache-2.0


def test_settings_of_a_new_store():
    """What is not given has its default."""
    made = StoreSettings.made(address="10.0.0.5:10911", progress="p", file_bytes=16384)
    assert (made.file_bytes, made.max_body, made.record_crc) == (16384, 4 << 20, False)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"colour": 1}, "no setting colour"),
        ({"file_bytes": 16385}, "multiple of 4096"),
        ({"file_bytes": 1 << 31}, "multiple of 4096"),
        ({"address": "nobody"}, "not an IP address"),
        ({"address": "10.0.0.5:99999"}, "not an IP address"),
        ({"max_body": -1}, "max_body"),
    ],
)
def test_settings_that_cannot_be(settings, text):
    """Each is named."""
    with pytest.raises(ValueError, match=text):
        StoreSettings.made(**{"address": "10.0.0.5:1", "progress": "p"} | settings)


def test_settings_of_a_newer_quire_are_kept():
    """A member that is not known stays."""
    assert StoreSettings.of({"address": "10.0.0.5:1", "progress": "p", "new": 3}).model_extra == {"new": 3}


def test_the_directory_of_rows_follows_the_user_s_state_directory(monkeypatch, tmp_path):
    """By default it is below the one of the environment."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert MessageOptions().derived_dir == tmp_path / "quire" / "messages"
    with pytest.raises(TypeError):
        MessageOptions.given("somewhere")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["10.0.0.5:10911", "[::1]:10911", "[2001:db8::7]:0"])
def test_addresses_come_back(text):
    """Those of both kinds."""
    assert address_text(*parsed_address(text)) == text
