"""The command that installs what is missing, for each way in which quire may have come."""

import json
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path

import pytest

from quire.conf import extras

# SPDX-License-Identifier: Apache-2.0

REQUIRED = [
    "twisted>=24.7",
    'pyOpenSSL>=25.2; extra == "tls"',
    "service_identity >=24 ; extra == 'tls'",
    'pyarrow>=18; extra == "pipeline"',
    'quire[pipeline,tls]; extra == "all"',
]


class Installed(Distribution):
    """One of these requirements, with the files that an installer left beside it."""

    def __init__(self, at: Path, **files: str) -> None:
        self._at, self._files = at, files

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename.partition(".")[0])

    def locate_file(self, path: object) -> Path:  # type: ignore[override]
        return self._at / str(path)

    @property
    def requires(self) -> list[str]:
        return REQUIRED


def note(url: str, **more: object) -> str:
    """What an installer notes (PEP 610)."""
    return json.dumps({"url": url, **more})


def test_each_source_is_named_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel that is there, a checkout, an index; where the wheel is gone, the libraries of the extra."""
    wheel = tmp_path / "a wheel" / "quire-1-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    gone = f"file://{tmp_path}/gone.whl"
    for found, expected in (
        (Installed(tmp_path, direct_url=note(wheel.as_uri())), f"pip install '{wheel}[tls]'"),
        (Installed(tmp_path, direct_url=note(tmp_path.as_uri(), dir_info={})), f"pip install '{tmp_path}[tls]'"),
        (
            Installed(tmp_path, direct_url=note(tmp_path.as_uri(), dir_info={"editable": True})),
            f"pip install -e '{tmp_path}[tls]'",
        ),
        (Installed(tmp_path, **{"PKG-INFO": "Name: quire"}), f"pip install -e '{tmp_path}[tls]'"),
        (Installed(tmp_path), "pip install 'quire[tls]'"),
        (Installed(tmp_path, direct_url=note(gone)), "pip install 'pyOpenSSL>=25.2' 'service_identity>=24'"),
    ):
        monkeypatch.setattr(extras, "distribution", lambda _name, found=found: found)
        assert extras.installs("tls") == expected


def test_an_extra_of_extras(tmp_path: Path) -> None:
    """Has the libraries of each."""
    assert extras.libraries(Installed(tmp_path), "all") == ["pyarrow>=18", "pyOpenSSL>=25.2", "service_identity>=24"]


def test_a_folder_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Is what it is run from."""

    def none(_name: str) -> Distribution:
        raise PackageNotFoundError

    monkeypatch.setattr(extras, "distribution", none)
    assert extras.installs("zstd") == f"pip install -e '{Path(__file__).parents[2]}[zstd]'"
