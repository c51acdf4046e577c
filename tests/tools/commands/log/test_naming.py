"""`quire log create, set, rename, list, show, delete` against four real bookies."""

import json

import pytest
import typer

from quire.conf.log import LogSettings
from quire.tools.commands.log.naming import as_one_line
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0


def test_a_log_s_life(uri: str) -> None:
    """Created with settings, listed, changed, renamed, deleted; under its name, percent-encoded or not."""
    made = ok(
        *["log", "create", "orders/eu", "--ensemble", 4, "--ack", 3, "--set", "roll_records=2", "--set", "dedup=true"],
        "--json",
        metadata=uri,
    ).document
    assert (made["name"], made["state"], made["epoch"], made["end"]) == ("orders/eu", "open", 0, 0)
    settings = made["settings"]
    assert (settings["ensemble"], settings["ack"], settings["roll_records"], settings["dedup"]) == (4, 3, 2, True)
    assert "there is a log 'orders/eu'" in refused(1, "log", "create", "orders%2Feu", metadata=uri)
    changed = ok("log", "set", "orders/eu", "roll_records=3", "ack=2", "--json", metadata=uri).document
    assert (changed["settings"]["roll_records"], changed["settings"]["ack"]) == (3, 2)
    said = ok("log", "set", "orders%2Feu", "ttl_ms=5", metadata=uri).out
    assert said.startswith("orders/eu: ensemble=4, roll_records=3, ttl_ms=5, dedup=true; all else as by default")
    assert ok("log", "create", "plain", metadata=uri).out.startswith("plain: all settings as by default")
    assert ok("log", "delete", "plain", "--yes", metadata=uri)
    assert {"name": "orders/eu"} in ok("log", "list", "--json", metadata=uri).rows
    assert ok("log", "rename", "orders/eu", "100%25", metadata=uri).out == "orders/eu is 100% now\n"
    assert "100%" in ok("log", "list", metadata=uri).out.splitlines()
    assert "give --yes" in refused(1, "log", "delete", "100%", metadata=uri)
    assert ok("log", "delete", "100%", "--yes", "--json", metadata=uri).document["deleted"] == "100%"
    assert "there is no log '100%'" in refused(1, "log", "show", "100%", metadata=uri)


def test_a_log_that_needs_more_bookies_than_there_are(uri: str) -> None:
    """Is made, for they may come, and it is said that appends wait for them."""
    said = ok("log", "create", "wide", "--ensemble", 5, "--write", 5, "--ack", 3, metadata=uri)
    assert "wide: " in said.out
    assert "wide needs 5 bookies for a segment, and 4 are writable" in said.err
    assert "needs" not in ok("log", "create", "narrow", "--ensemble", 4, metadata=uri).err


def test_what_a_log_is_like(uri: str) -> None:
    """Its segments with their ledgers, its manifest as it is stored, and a row of the long list."""
    ok("log", "create", "shown", "--set", "roll_records=2", metadata=uri)
    for number in range(3):
        ok("log", "append", "shown", "--lines", metadata=uri, stdin=b"a\nb\n" if number else b"a\n")
    shown = ok("log", "show", "shown", "--segments", "--json", metadata=uri).document
    assert (shown["begin"], shown["end"], shown["bytes"], shown["owner"], shown["doomed"]) == (0, 5, 5, None, 0)
    assert [(each["n"], each["first"], each["records"]) for each in shown["segments"]] == [
        (0, 0, 1),
        (1, 1, 2),
        (2, 3, 2),
    ]
    plain = ok("log", "show", "shown", "--segments", metadata=uri).out
    assert all(f"{each['ledger']}" in plain for each in shown["segments"])
    told = [line.split() for line in plain.splitlines()]
    assert ["segments:", "3"] in told
    assert shown["holds"] == []
    assert ["holds:", "none"] in told
    raw = ok("log", "show", "shown", "--raw", metadata=uri)
    assert raw.out.startswith('{"quire":"log","format":1,')
    assert json.loads(raw.out)["id"] == shown["id"]
    (row,) = [row for row in ok("log", "list", "--long", "--json", metadata=uri).rows if row["name"] == "shown"]
    assert (row["id"], row["segments"], row["end"]) == (shown["id"], 3, 5)
    assert "shown" in ok("log", "list", "--long", metadata=uri).out
    refused(2, "log", "show", "shown", "--raw", "--segments", metadata=uri)


def test_settings_that_can_t_be(uri: str) -> None:
    """Unknown, impossible, or no setting: named, and nothing is made."""
    for wrong, said in (("colour=red", "no setting colour"), ("ack=9", "quorums"), ("roll_bytes", "KEY=VALUE")):
        assert said in refused(2, "log", "create", "wrong", "--set", wrong, metadata=uri)
    refused(2, "log", "create", "", metadata=uri)
    assert {"name": "wrong"} not in ok("log", "list", "--json", metadata=uri).rows


def test_the_help_names_every_setting() -> None:
    """So that no one has to look into the manual for their names."""
    words = ok("log", "create", "--help").out.split()
    assert set(LogSettings.model_fields) <= {word.strip(",.") for word in words}


def test_a_manifest_that_is_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a damaged record, which `--raw` shows as it is."""
    assert as_one_line('{"a": [1]}') == '{"a": [1]}'
    for text in ("", "{", "[" * 100_000, "\ufffd"):
        with pytest.raises(typer.Exit):
            as_one_line(text)
        assert "without --json" in capsys.readouterr().err
