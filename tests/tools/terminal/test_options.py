"""Shared options: where the metadata URI and the client's options come from; the question before something is gone."""

import io
from pathlib import Path

import pytest
import typer

from quire.conf import client
from quire.conf.properties import ConfigurationError
from quire.tools.terminal.options import Usage, asked, client_options, metadata_uri, password_of

# SPDX-License-Identifier: Apache-2.0


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file that QUIRE_CONF names, not written yet."""
    path = tmp_path / "client.conf"
    monkeypatch.setenv(client.CONF_VARIABLE, str(path))
    return path


def test_the_option_wins(conf: Path) -> None:
    """--metadata (or its environment variable) is taken before the file is looked at."""
    conf.write_text("metadataServiceUri=zk://file/ledgers\n")
    assert metadata_uri("sqlite:///x.db") == "sqlite:///x.db"


def test_the_configuration_file_names_the_store(conf: Path) -> None:
    """In BookKeeper's own key and format."""
    conf.write_text("# ours\nmetadataServiceUri = zk://a:1;b:2/ledgers\naddEntryTimeoutSec: 7\n")
    assert metadata_uri(None) == "zk://a:1;b:2/ledgers"
    assert client_options().add_timeout_ms == 7000


def test_no_store_is_wrong_usage(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text names the file that lacks it, or the files that could have had it, and the next step."""
    conf.write_text("\n")
    with pytest.raises(Usage, match=rf"not set in {conf}.*QUIRE_METADATA"):
        metadata_uri(None)
    monkeypatch.delenv(client.CONF_VARIABLE)
    monkeypatch.setattr(client, "CONF_FILES", (str(conf.parent / "none"),))
    with pytest.raises(Usage, match=r"exists.*--metadata URI"):
        metadata_uri(None)


def test_a_file_that_is_named_must_exist(conf: Path) -> None:
    """A mistyped QUIRE_CONF is not ignored."""
    with pytest.raises(ConfigurationError, match=r"client\.conf"):
        metadata_uri(None)


def test_a_mistyped_key_is_refused(conf: Path) -> None:
    """With the nearest one named."""
    conf.write_text("addEntryTimeoutSecs=7\n")
    with pytest.raises(ConfigurationError, match="addEntryTimeoutSec"):
        client_options()


def test_protocol(conf: Path) -> None:
    """--protocol wins over the file; anything but v2 and v3 is wrong usage."""
    conf.write_text("useV2WireProtocol=false\n")
    assert client_options().protocol == "v3"
    assert client_options("v2").protocol == "v2"
    with pytest.raises(Usage, match="v2 or v3"):
        client_options("v4")


@pytest.mark.parametrize(
    ("content", "password"),
    [(b"", b""), (b"key", b"key"), (b"key\n", b"key"), (b"key\r\n", b"key"), (b"a\n\n", b"a\n")],
)
def test_a_password_file(tmp_path: Path, content: bytes, password: bytes) -> None:
    """One final line end is the editor's, not the password's."""
    path = tmp_path / "password"
    path.write_bytes(content)
    assert password_of(path) == password


def test_no_password_file_is_the_empty_password() -> None:
    """The default of every ledger."""
    assert password_of(None) == b""


def test_what_destroys_asks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what it will do; without a terminal to ask on it does nothing, unless it is allowed to."""
    asked(True, "All will go.")
    assert "All will go." in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(typer.Exit) as refusal:
        asked(False, "All will go.")
    assert refusal.value.exit_code == 1
    assert "--yes" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_the_answer_decides(monkeypatch: pytest.MonkeyPatch, answer: str, goes_on: bool) -> None:
    """Only a yes is one."""
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True  # type: ignore[method-assign]  # what a terminal says
    monkeypatch.setattr("sys.stdin", terminal)
    if goes_on:
        asked(False, "All will go.")
    else:
        with pytest.raises(typer.Abort):
            asked(False, "All will go.")
