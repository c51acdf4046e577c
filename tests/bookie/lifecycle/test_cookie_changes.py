"""Changes of a stopped bookie's cookies, in directories and store together: cut off anywhere, they are gone on with."""

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail

from quire.bookie.layout import LOCK, current
from quire.bookie.lifecycle.cookie import Cookie
from quire.bookie.lifecycle.cookie_changes import delete, everywhere, expand, rename
from quire.bookie.lifecycle.ids import IdentityError
from quire.metadata.retired_ids import retired
from quire.metadata.store import NEW, CookieNotFound, ServiceInfo
from quire.protocol.errors import MetaStore
from tests.bookie.fakes.home import Home

# SPDX-License-Identifier: Apache-2.0

NAMES = ("j", "l1", "l2")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A bookie that ran; its store has a cluster of its own."""
    made = Home(tmp_path)
    made.cluster = made.find_cluster()
    made.check("b:1")
    return made


def done(home: Home, story: Coroutine[Any, Any, Any]) -> Any:
    return home.wait(Deferred.fromCoroutine(story))


def renamed(home: Home, before: str = "b:1", after: str = "c:1") -> None:
    done(home, rename(home.store, home.options(), home.files, before, after))


def cookies(home: Home) -> list[str]:
    """Whose they are in the directories."""
    return [Cookie.decode(home.version(name).read_bytes(), name).bookie for name in NAMES]


def test_the_same_directories_get_another_id(home: Home) -> None:
    """Incarnation and all; the old id is remembered; a start finds all as it has to be."""
    incarnation = home.incarnation
    renamed(home)
    assert cookies(home) == ["c:1"] * 3
    assert home.stored("c:1") == home.version("j").read_bytes()
    assert "was given another id" in f"was {done(home, retired(home.store, 'b:1'))}"
    assert home.check("c:1") is False
    assert home.incarnation == incarnation
    with pytest.raises(CookieNotFound):
        home.stored("b:1")


@pytest.mark.parametrize("written", range(4))
def test_a_change_of_id_that_was_cut_off_is_gone_on_with(
    home: Home, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After so many directories; or when all were done and the store went away."""
    replace, left = home.files.replace, [written]

    def failing(path: str, data: bytes) -> None:
        if path.endswith("VERSION"):
            if not left[0]:
                raise OSError(5, "Input/output error", path)
            left[0] -= 1
        replace(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(home.files, "replace", failing)
        patched.setattr(home.store, "remove_cookie", lambda *_: fail(MetaStore("away")))
        with pytest.raises((IdentityError, MetaStore)):
            renamed(home)
    assert cookies(home) == ["c:1"] * written + ["b:1"] * (3 - written)
    renamed(home)
    assert cookies(home) == ["c:1"] * 3
    assert home.check("c:1") is False


def test_which_changes_of_id_are_refused(home: Home) -> None:
    """A bookie that runs or is listed, another bookie's directories, an id in use, a directory without its cookie."""
    with pytest.raises(IdentityError, match="is not the cookie of x:1"):
        renamed(home, "x:1", "c:1")
    home.wait(home.store.write_cookie("c:1", Cookie("c:1", "/j", "1\t/l").encode(), NEW))
    with pytest.raises(IdentityError, match="c:1 is the id of another bookie"):
        renamed(home)
    lock = home.files.lock(current(str(home.path / "l1"), LOCK))
    with pytest.raises(IdentityError, match="l1 is in use"):
        renamed(home, after="d:1")
    home.files.close(lock)
    home.wait(home.store.register_bookie("b:1", ServiceInfo.of("b", 1)))
    with pytest.raises(IdentityError, match="b:1 is listed"):
        renamed(home, after="d:1")
    home.wait(home.store.unregister_bookie("b:1"))
    home.version("l2").unlink()
    with pytest.raises(IdentityError, match="only a bookie that ran"):
        renamed(home, after="d:1")
    assert Cookie.decode(home.stored("b:1"), "f").bookie == "b:1"


def test_new_directories_join_without_the_option(home: Home) -> None:
    """A bookie that holds nothing takes more ledger directories; one that the cluster does not know, none."""
    options = home.options(ledger_directories=("l1", "l2", "l3"))
    done(home, expand(home.store, options, home.files, "b:1"))
    assert home.version("l3").read_bytes() == home.stored()
    found = done(home, everywhere(home.store, options, home.files, "b:1"))
    assert len({cookie for cookie in found.values() if cookie is not None}) == 1
    assert len(found) == 5
    with pytest.raises(IdentityError, match="does not know x:1"):
        done(home, expand(home.store, options, home.files, "x:1"))


def test_cookies_go_together(home: Home) -> None:
    """From directories with data only if that is insisted on; the id is remembered."""
    (home.path / "l1" / "current" / "0.log").write_bytes(b"x")
    with pytest.raises(IdentityError, match="l1 holds data"):
        done(home, delete(home.store, home.options(), home.files, "b:1", even_with_data=False))
    done(home, delete(home.store, home.options(), home.files, "b:1", even_with_data=True))
    assert not [name for name in NAMES if home.version(name).exists()]
    with pytest.raises(IdentityError, match="has files but no cookie"):
        home.check("b:1")
