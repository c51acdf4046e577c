"""What is said of files that the system refuses: who runs, who owns, and `chown`, never an empty directory."""

import errno
import os
import pwd
from pathlib import Path

import pytest

from quire.bookie.files import Files, error_at, is_refused, owner_advice, user
from quire.bookie.lifecycle.bookie import Bookie
from quire.bookie.lifecycle.ids import IdentityError
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
        text = error_at(str(directory / name), PermissionError(errno.EACCES, "Permission denied"))
        assert f"runs as {OTHER}" in text
        assert f"belongs to {owner}" in text
        assert f"`chown -R {OTHER}: {directory}`" in text
        assert "Nothing is lost" in text
    assert error_at("/x", OSError(errno.EIO, "broken")) == "/x: broken"


def test_an_owner_who_is_refused_is_told_of_modes(tmp_path: Path) -> None:
    """`chown` would not help."""
    text = owner_advice(str(tmp_path / "current" / "VERSION"))
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
