"""Files that change while a process runs: read again by time or on demand, and never a broken one."""

from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel, eventAsText, globalLogPublisher

from quire.conf.properties import ConfigurationError
from quire.security.watched import Watched, warn_of_readers
from tests.security.test_credentials import alarms

# SPDX-License-Identifier: Apache-2.0


class World:
    """A file with a word in it, and the word that is in use; a word in capitals can't be used."""

    def __init__(self, where: Path, every_s: int) -> None:
        self.clock = Clock()
        self.path = where / "word"
        self.path.write_text("one")
        self.used = ""
        self.taken = 0
        self.file = Watched("the words", [str(self.path)], self._take, every_s, self.clock.seconds)

    def _take(self) -> None:
        self.taken += 1
        try:
            word = self.path.read_text()
        except OSError:
            raise ConfigurationError(f"{self.path} is gone") from None
        if word.isupper():
            raise ConfigurationError(f"{self.path} shouts")
        self.used = word


def test_it_is_looked_at_when_it_is_time(tmp_path: Path) -> None:
    """And read only if it has changed since."""
    world = World(tmp_path, 60)
    world.path.write_text("two words")
    world.clock.advance(59)
    assert not world.file.refresh()
    assert world.used == "one"
    world.clock.advance(1)
    assert world.file.refresh()
    assert (world.used, world.file.reloads) == ("two words", 1)
    world.clock.advance(60)
    assert not world.file.refresh()
    assert world.taken == 2


def test_one_that_was_half_written_is_used_as_soon_as_it_is_whole(tmp_path: Path) -> None:
    """It is looked at in between, and read when it has changed again; then by time as before, or never if never."""
    world = World(tmp_path, 60)
    world.path.write_text("TWO")
    world.clock.advance(60)
    assert not world.file.refresh()
    assert not world.file.refresh()
    assert (world.used, world.taken) == ("one", 2)
    world.path.write_text("two words")
    assert world.file.refresh()
    assert (world.used, world.file.broken) == ("two words", None)
    world.path.write_text("three")
    assert not world.file.refresh()
    never = World(tmp_path, 0)
    never.path.write_text("FOUR")
    assert not never.file.reload()
    never.path.write_text("five words")
    assert not never.file.refresh()


def test_a_new_mode_is_a_change(tmp_path: Path) -> None:
    """A file that everybody may write is refused until `chmod`, which changes nothing else of it."""
    world = World(tmp_path, 1)
    world.path.chmod(0o640)
    world.clock.advance(1)
    assert world.file.refresh()


def test_who_else_can_read_a_secret_is_told(tmp_path: Path) -> None:
    """Everybody: a warning that names the file; the own group: none."""
    file = tmp_path / "secret"
    file.write_text("a password")
    said: list[str] = []

    def take(event: LogEvent) -> None:
        if event["log_level"] is LogLevel.warn:
            said.append(eventAsText(event, includeTimestamp=False, includeSystem=False))

    globalLogPublisher.addObserver(take)
    try:
        for mode in (0o640, 0o644):
            file.chmod(mode)
            warn_of_readers(str(file))
    finally:
        globalLogPublisher.removeObserver(take)
    assert said == [f"everybody on this machine can read the secrets in {file}: chmod o-r {file}"]


def test_without_a_time_only_on_demand(tmp_path: Path) -> None:
    """`reload` is what SIGHUP calls."""
    world = World(tmp_path, 0)
    world.path.write_text("two words")
    world.clock.advance(1e6)
    assert not world.file.refresh()
    assert world.file.reload()
    assert world.used == "two words"


@pytest.mark.parametrize("gone", [False, True])
def test_what_cant_be_used_changes_nothing(tmp_path: Path, gone: bool) -> None:
    """It is one alarm, which ends when the file is whole again."""
    world = World(tmp_path, 1)
    with alarms() as lines:
        if gone:
            world.path.unlink()
        else:
            world.path.write_text("BROKEN")
        for _ in range(3):
            world.clock.advance(1)
            assert not world.file.refresh()
        assert (world.used, world.file.reloads) == ("one", 0)
        assert world.file.broken is not None
        assert len(lines) == 1
        assert str(world.path) in lines[0]
        assert "the words changed and can't be used" in lines[0]
        world.path.write_text("whole again")
        world.clock.advance(1)
        assert world.file.refresh()
    assert (world.used, world.file.broken) == ("whole again", None)


def test_what_goes_wrong_here_is_an_alarm_too(tmp_path: Path) -> None:
    """An error that nobody expected ends nothing, and its text, which may be of the file, is not told."""
    world = World(tmp_path, 1)
    world.path.write_bytes(b"\xff of a secret")
    with alarms() as lines:
        assert not world.file.reload()
    assert (world.used, world.file.broken) == ("one", "this went wrong: UnicodeDecodeError")
    assert len(lines) == 1
    assert "secret" not in lines[0]


def test_a_file_that_is_broken_to_begin_with(tmp_path: Path) -> None:
    """There is nothing to go on with."""

    def take() -> None:
        raise ConfigurationError("it is broken")

    with pytest.raises(ConfigurationError, match="it is broken"):
        Watched("the words", [str(tmp_path)], take, 1, Clock().seconds)
