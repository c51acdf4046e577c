"""The sides of the bench that are quire's: this checkout, or another one."""

import json
from pathlib import Path

import pytest

from bench import sides
from bench.ratios import Comparison
from bench.sides import Load, Quire

ROOT = Path(__file__).resolve().parents[2]


def test_a_checkout_is_measured_with_its_own_packages(tmp_path: Path) -> None:
    """
    Client and bookies are those of the folder that is given: a copy is recognized by a mark in its report.
    """
    other = tmp_path / "other"
    packages = other / ".types" / "quire"
    packages.mkdir(parents=True)
    for package in (ROOT / ".types" / "quire").iterdir():
        if package.name != "tools":
            (packages / package.name).symlink_to(package.resolve())
    tools = packages / "tools"
    tools.mkdir()
    for source in (ROOT / "tools").rglob("*.py"):
        text = source.read_text(encoding="utf-8")
        target = tools / source.relative_to(ROOT / "tools")
        target.parent.mkdir(exist_ok=True)
        target.write_text(
            text.replace('"seconds": round(seconds, 3),', '"seconds": round(seconds, 3), "other": True,'),
            encoding="utf-8",
        )
    with Quire(str(tmp_path), checkout=other) as quire:
        assert quire.run(Load(size=100, entries=50, window=50, batch=50))["other"] is True
        environment = Path(f"/proc/{quire.pids[0]}/environ").read_bytes()
        assert str(other).encode() in environment


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    """By name, before anything is started."""
    with pytest.raises(SystemExit, match=f"{tmp_path} is no checkout of quire"):
        Quire(None, checkout=tmp_path)


def test_rows_of_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make bench` has them measured by a process of its own, with its own words."""
    row = Comparison("log x", [1.0], [2.0], 0.9, unit="us")
    seen: list[list[str]] = []

    def done(command: list[str], **_options: object) -> object:
        seen.append(command)
        return type("Done", (), {"stdout": json.dumps([row.as_json()])})

    monkeypatch.setattr(sides.subprocess, "run", done)
    assert list(sides.measured("logs", "--pairs=3", "--only=log tail")) == [row]
    assert seen[0][1:] == ["-m", "bench.logs", "--json", "--pairs=3", "--only=log tail"]
