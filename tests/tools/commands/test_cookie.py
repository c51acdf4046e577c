"""`quire cookie` on a store without a bookie's process: shown, made from a configuration, removed, and refusals."""

from pathlib import Path

import pytest

from quire.metadata.store import NEW, ServiceInfo
from quire.metadata.uri import open_store
from tests.reactor import reactor, run
from tests.tools.command import ok, refused

# SPDX-License-Identifier: Apache-2.0

ID = "10.0.0.5:3181"


@pytest.fixture
def store(empty_store: str) -> str:
    ok("metadata", "init", metadata=empty_store)
    return empty_store


@pytest.fixture
def conf(tmp_path: Path, store: str) -> Path:
    """The bookie need not be here, nor its directories."""
    path = tmp_path / "bookie.conf"
    path.write_text(f"metadataServiceUri={store}\njournalDirectories=/j1,/j2\nledgerDirectories=/l1,/l2\n")
    return path


def test_a_cookie_is_made_from_a_configuration(store: str, conf: Path) -> None:
    """With the directories and the cluster's id; once, and no directory is touched."""
    made = ok("cookie", "create", ID, "--conf", conf, "--json", metadata=store).document
    instance = ok("metadata", "show", "--json", metadata=store).document["cluster"]
    assert made == {
        "bookie": ID,
        "journal_directories": ["/j1", "/j2"],
        "ledger_directories": ["/l1", "/l2"],
        "index_directories": None,
        "instance_id": instance,
        "incarnation": None,
    }
    assert "CookieExists" in refused(1, "cookie", "create", ID, "--conf", conf, metadata=store)


def test_a_cookie_is_not_made_from_a_configuration_of_another_bookie(store: str, conf: Path, tmp_path: Path) -> None:
    """Neither by the id that the file says, nor by the cookies in its directories; both ids are named."""
    named = tmp_path / "named.conf"
    for line, own in (("bookieId=b1", "b1"), ("advertisedAddress=10.0.0.4", "10.0.0.4:3181")):
        named.write_text(f"{conf.read_text()}{line}\n")
        said = refused(2, "cookie", "create", ID, "--conf", named, metadata=store)
        assert f"{named} is the configuration of {own}, not of {ID}" in said
    conf.write_text(
        f"metadataServiceUri={store}\njournalDirectories={tmp_path}/j\nledgerDirectories={tmp_path}/l\n"
        "bookieId=b1\nallowLoopback=true\n"
    )
    cookie = ok("cookie", "create", "b1", "--conf", conf, metadata=store)
    assert cookie.out
    (tmp_path / "j" / "current").mkdir(parents=True)
    (tmp_path / "j" / "current" / "VERSION").write_text(ok("cookie", "show", "b1", metadata=store).out)
    conf.write_text(conf.read_text().replace("bookieId=b1\n", ""))
    said = refused(1, "cookie", "create", ID, "--conf", conf, metadata=store)
    assert f"its bookie is b1, this one is {ID}" in said
    assert "CookieNotFound" in refused(1, "cookie", "show", ID, metadata=store)


def test_a_cookie_is_shown_as_it_is_kept(store: str, conf: Path) -> None:
    """As text, or as a document with its version; that of an unknown bookie is an error."""
    assert "CookieNotFound" in refused(1, "cookie", "show", ID, metadata=store)
    made = ok("cookie", "create", ID, "--conf", conf, "--json").document
    shown = ok("cookie", "show", ID, "--json", metadata=store).document
    text = ok("cookie", "show", ID, metadata=store).out
    assert shown == {**made, "version": 0, "text": text}
    assert text.startswith(f'5\nbookieHost: "{ID}"\n')


def test_a_cookie_is_removed_unless_its_bookie_is_up(store: str, conf: Path) -> None:
    """A writable one, or a read-only one."""
    ok("cookie", "create", ID, "--conf", conf)

    async def removed_while_up() -> list[str]:
        from twisted.internet.threads import deferToThread

        held = await open_store(reactor, store)
        said = []
        for read_only in (False, True):
            await held.register_bookie(ID, ServiceInfo.of("10.0.0.5", 3181), read_only)
            said.append(await deferToThread(refused, 1, "cookie", "delete", "--yes", ID, metadata=store))
        await held.close()
        return said

    assert all(f"{ID} is up; stop it first" in line for line in run(removed_while_up))
    assert "nothing was done: give --yes" in refused(1, "cookie", "delete", ID, metadata=store)
    assert ok("cookie", "delete", "--yes", ID, "--json", metadata=store).document == {"bookie": ID, "removed": True}
    assert "CookieNotFound" in refused(1, "cookie", "delete", "--yes", ID, metadata=store)


def test_what_is_no_cookie_or_no_id_is_refused(store: str, conf: Path) -> None:
    """A text that can't be read is named with its bookie; an id that none may have is a usage error."""

    async def damage() -> None:
        held = await open_store(reactor, store)
        await held.write_cookie(ID, b"junk", NEW)
        await held.close()

    run(damage)
    assert f"the cookie of {ID}" in refused(1, "cookie", "show", ID, metadata=store)
    refused(2, "cookie", "create", "no id", "--conf", conf, metadata=store)
