"""The sides of the bench that are quire's: this checkout, with TLS or without, or another one."""

import json
from pathlib import Path

import pytest

from bench import sides
from bench.sides import Quire

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
        assert quire.run("append", size=100, entries=50, window=50, batch=50)["other"] is True
        environment = Path(f"/proc/{quire.pids[0]}/environ").read_bytes()
        assert str(other).encode() in environment


def test_a_side_with_tls_appends_over_it(tmp_path: Path) -> None:
    """Its bookies serve nobody without."""
    with Quire(str(tmp_path), tls=True) as quire:
        assert quire.run("append", size=100, entries=50, window=50, batch=50)["entries"] == 50
        del quire.environment["QUIRE_CONF"]
        with pytest.raises(RuntimeError, match="TLS"):
            quire.run("append", size=100, entries=50, window=50, batch=50)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    """By name, before anything is started."""
    with pytest.raises(SystemExit, match=f"{tmp_path} is no checkout of quire"):
        Quire(None, checkout=tmp_path)


def test_a_module_that_measures_by_itself_is_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own words; what it prints is the answer."""
    seen: list[list[str]] = []

    def done(command: list[str], **_options: object) -> object:
        seen.append(command)
        return type("Done", (), {"stdout": json.dumps({"runs": {}})})

    monkeypatch.setattr(sides.subprocess, "run", done)
    assert sides.measured("restart", "--pairs=3", "--mb=10") == {"runs": {}}
    assert seen[0][1:] == ["-m", "bench.restart", "--pairs=3", "--mb=10"]


def test_a_read_is_of_a_ledger_that_was_kept(tmp_path: Path) -> None:
    """Written once for all runs of one size, before anything of a run is counted."""
    written: list[int] = []

    class Counted(Quire):
        def drive(self, verb: str, words: sides.Words) -> sides.Run:
            if verb == "append":
                written.append(int(words["entries"]))
            return super().drive(verb, words)

    with Counted(str(tmp_path)) as quire:
        for verb, entries in (("read", 200), ("random", 5)):
            found = quire.run(verb, size=100, written=200, entries=entries, window=1, batch=1)
            assert found["entries"] == entries
            assert found["cpu_us_per_entry"] >= found["client_cpu_us_per_entry"] > 0
    assert written == [200]
