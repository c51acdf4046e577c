"""Where a program finds its cluster that names none: as the commands do."""

from pathlib import Path

import pytest

from quire.client import connect
from quire.conf.client import NoStoreNamed, store_named

# SPDX-License-Identifier: Apache-2.0


def test_the_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given, then the variable, then the file; an error that names all three where there is none."""
    conf = tmp_path / "client.conf"
    conf.write_text("metadataServiceUri=sqlite:///of-the-file\n")
    monkeypatch.setenv("QUIRE_CONF", str(conf))
    monkeypatch.setenv("QUIRE_METADATA", "sqlite:///of-the-variable")
    assert store_named("sqlite:///given") == "sqlite:///given"
    assert store_named(None) == "sqlite:///of-the-variable"
    monkeypatch.delenv("QUIRE_METADATA")
    assert store_named(None) == "sqlite:///of-the-file"
    conf.write_text("")
    with pytest.raises(NoStoreNamed, match=r"not set in \S+client.conf\): give its URI or set QUIRE_METADATA"):
        store_named(None)
    with pytest.raises(ValueError, match="no metadata store is named"):
        connect()
