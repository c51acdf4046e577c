"""What is said of files that the system refuses: who runs, who owns, and `chown`, never an empty directory."""

import errno
import os
import pwd
from pathlib import Path

import pytest

from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.lifecycle.ids import IdentityError
from quire.rows.files import Files, error_at, is_refused, owner_advice, user
from tests.bookie.fakes.in_process import new_store, options_in
from tests.reactor import reactor, run

# SPDX-License-Identifier: Apache-2.0

OTHER = 65_533  # a user without a name


@pytest.fixture
def as_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is of another user than the files."""
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)


class Refusing(Files):
    """Files of these names are refused."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def open(self, path: str, create: bool = False) -> int:
        if any(path.endswith(name) for name in self._names):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().open(path, create)


def test_what_counts_as_refused() -> None:
    """By number, or by RocksDB's words."""
    for number, refused in ((errno.EACCES, True), (errno.EPERM, True), (errno.EIO, False), (errno.ENOENT, False)):
        assert is_refused(OSError(number, os.strerror(number))) == refused
    assert is_refused(OSError("IO error: While open a file for lock: /x/LOCK: Permission denied"))
    assert not is_refused(OSError("IO error: No space left on device"))


@pytest.mark.usefixtures("as_another")
def test_user_owner_and_command_are_named(tmp_path: Path) -> None:
    """Of the file, or of what is above it where it can't be looked at; the command is for the whole directory."""
    directory = tmp_path / "ledgers"
    (directory / "current").mkdir(parents=True)
    owner = pwd.getpwuid(os.getuid()).pw_name
    for name in ("current/VERSION", "current/runs/LOCK"):
        text = error_at(str(directory / name), str(directory), PermissionError(errno.EACCES, "Permission denied"))
        assert f"runs as {OTHER}" in text
        assert f"belongs to {owner}" in text
        assert f"`chown -R {OTHER}: {directory}`" in text
        assert "Nothing is lost" in text
    assert error_at("/x", "/x", OSError(errno.EIO, "broken")) == "/x: broken"


@pytest.mark.usefixtures("as_another")
@pytest.mark.parametrize("name", ["VERSION", ".qj"])
def test_a_directory_below_one_of_the_same_name_is_named_itself(tmp_path: Path, name: str) -> None:
    """`chown -R` of what is above it would change the owner of other programs' files."""
    test_a_start_on_files_of_another_user_says_so(tmp_path / "current" / "bk", name)


@pytest.mark.usefixtures("as_another")
def test_a_first_start_below_a_directory_of_another_user_is_told_to_make_its_own(tmp_path: Path) -> None:
    """The configured directory, with this owner: there is nothing yet to change the owner of."""

    class Unmakeable(Files):
        def make_directories(self, path: str) -> None:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "bk"))

    async def story() -> None:
        store = await new_store()
        with pytest.raises(IdentityError, match=rf"`install -d -o {OTHER} -m 750 {tmp_path}/bk/\w+`") as refused:
            await Bookie(reactor, options_in(tmp_path / "bk", store.uri), store, Unmakeable()).start()
        assert "chown" not in str(refused.value)
        await store.close()

    run(story)


def test_a_directory_behind_a_closed_one_is_to_be_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be there, with the right owner."""
    look = os.stat

    def refuse(path: str) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "closed" / "ledgers")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return look(path)

    (tmp_path / "closed").mkdir()
    directory = str(tmp_path / "closed" / "ledgers")
    monkeypatch.setattr(os, "stat", refuse)
    text = owner_advice(f"{directory}/current/VERSION", directory)
    monkeypatch.undo()
    assert f"`chmod o+x {tmp_path / 'closed'}`" in text


def test_an_owner_who_is_refused_is_told_of_modes(tmp_path: Path) -> None:
    """`chown` would not help."""
    text = owner_advice(str(tmp_path / "current" / "VERSION"), str(tmp_path))
    assert f"`chmod -R u+rwX {tmp_path}`" in text
    assert user(os.geteuid()) in text


@pytest.mark.usefixtures("as_another")
@pytest.mark.parametrize("name", ["VERSION", "quire.place", "quire.mark", ".qj", "quire.lock"])
def test_a_start_on_files_of_another_user_says_so(tmp_path: Path, name: str) -> None:
    """Whichever file is met first: the bookie is told to change the owner, not to put an empty directory there."""

    async def story() -> None:
        store = await new_store()
        options = options_in(tmp_path, store.uri)
        first = Bookie(reactor, options, store)
        await first.start()
        await first.stop()
        with pytest.raises(IdentityError, match=rf"`chown -R {OTHER}: {tmp_path}/\w+`") as refused:
            await Bookie(reactor, options, store, Refusing(name)).start()
        assert "empty" not in str(refused.value)
        again = Bookie(reactor, options, store)
        await again.start()
        await again.stop()
        await store.close()

    run(story)
