"""Which provider the options give, and what is said of the file of passwords before anybody connects."""

from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs, formatEvent

from quire.conf.bookie import BookieOptions
from quire.conf.client import ClientOptions
from quire.conf.properties import ConfigurationError
from quire.security.authentication import of_bookie, of_client, watch
from quire.security.digest_md5 import BookiesSide, ClientsSide, digest_of
from quire.security.exchange import Exchange, NotAuthenticated, Provider
from quire.security.jaas import MODULE
from tests.security.wires import DIRECTORIES

# SPDX-License-Identifier: Apache-2.0

SECRET = "hunter2"


def file(where: Path, mode: int = 0o600) -> str:
    path = where / "jaas.conf"
    path.write_text(
        f'Bookie {{ {MODULE} required user_bookkeeper="{SECRET}" user_hd="{SECRET}"; }};\n'
        f'BookKeeper {{ {MODULE} required username="hd" password="{SECRET}"; }};\n'
    )
    path.chmod(mode)
    return str(path)


def bookie(path: str, **more: object) -> BookieOptions:
    return BookieOptions.model_validate({**DIRECTORIES, "authentication": "sasl", "jaas_file": path, **more})


def come_in(provider: Provider, user: str) -> bool:
    """Whether a user of the file with the right password is let in."""
    there, here = provider.begin(), ClientsSide(user, digest_of(user, SECRET))
    assert isinstance(there, BookiesSide)
    try:
        here.step(there.step(here.step(there.step(here.step(b"")))))
    except NotAuthenticated:
        return False
    return there.complete and here.complete


def lines(events: list[LogEvent]) -> str:
    return "\n".join(formatEvent(event) for event in events)


def test_without_the_option_everybody_is_served() -> None:
    """No provider, and nothing is read."""
    assert of_bookie(BookieOptions.model_validate(DIRECTORIES)) is None


def test_those_whom_the_expression_matches_are_let_in(tmp_path: Path) -> None:
    """Their whole names; the others are named at the start."""
    with capturedLogs() as events:
        provider = of_bookie(bookie(file(tmp_path)))
    assert provider is not None
    assert provider.name == "sasl"
    assert come_in(provider, "bookkeeper")
    assert not come_in(provider, "hd")
    assert "are not let in: hd" in lines(events)
    everybody = of_bookie(bookie(file(tmp_path), jaas_allowed=".*"))
    assert everybody is not None
    assert come_in(everybody, "hd")


def test_an_expression_that_lets_nobody_in_stops_the_start(tmp_path: Path) -> None:
    """It has to match the whole name."""
    with pytest.raises(ConfigurationError, match=r"saslJaasClientAllowedIds=book matches none of .*: bookkeeper, hd"):
        of_bookie(bookie(file(tmp_path), jaas_allowed="book"))


def test_what_is_weak_is_said_at_the_start(tmp_path: Path) -> None:
    """No TLS, and a file that everybody can read; no line has a password."""
    with capturedLogs() as events:
        of_bookie(bookie(file(tmp_path, 0o604)))
    said = lines(events)
    assert "authenticate without TLS" in said
    assert "chmod o-r" in said
    assert SECRET not in said
    with capturedLogs() as events:
        of_bookie(bookie(file(tmp_path), jaas_allowed=".*", tls=True, tls_certificate="/c", tls_key="/k"))
    assert lines(events) == ""


def test_a_client_takes_the_section_of_its_role(tmp_path: Path) -> None:
    """BookKeeper, or Auditor for what a cluster does by itself; the names of both are options."""
    path = file(tmp_path)
    asked = {"authentication": "sasl", "jaas_file": path}
    everybody = of_bookie(bookie(path, jaas_allowed=".*"))
    provider = of_client(ClientOptions.model_validate(asked))
    assert everybody is not None
    assert provider is not None
    there, here = everybody.begin(), provider.begin()
    here.step(there.step(here.step(there.step(here.step(b"")))))
    assert there.complete
    assert here.complete
    with pytest.raises(ConfigurationError, match="no section Auditor"):
        of_client(ClientOptions.model_validate({**asked, "client_role": "system"}))
    assert of_client(
        ClientOptions.model_validate({**asked, "client_role": "system", "jaas_system_section": "BookKeeper"})
    )
    assert of_client(ClientOptions()) is None


def test_a_provider_shows_no_password(tmp_path: Path) -> None:
    """Nor do the options that it came from."""
    options = bookie(file(tmp_path))
    client = ClientOptions(authentication="sasl", jaas_file=options.jaas_file)
    shown = (options, client, options.model_dump(), client.model_dump(), of_bookie(options), of_client(client))
    assert SECRET not in repr(shown)


# -- a file that changes


def test_users_come_and_go(tmp_path: Path) -> None:
    """Of a new file that can be used; a broken one changes nothing, and whose proof still would do is said of each."""
    options, clock = bookie(file(tmp_path), jaas_allowed=".*", access_refresh_s=60), Clock()
    provider = of_bookie(options)
    assert provider is not None
    watched = watch(provider, options, clock.seconds)
    sides = {user: come_in_as(provider, user) for user in ("hd", "bookkeeper")}
    path = Path(file(tmp_path))
    path.write_text("Bookie { half of a")
    clock.advance(60)
    assert not watched.refresh()
    assert watched.broken is not None
    assert SECRET not in watched.broken
    assert come_in(provider, "hd")
    path.write_text(f'Bookie {{ {MODULE} required user_bookkeeper="{SECRET}" user_new="{SECRET}"; }};')
    clock.advance(60)
    assert watched.refresh()
    assert not come_in(provider, "hd")
    assert come_in(provider, "new")
    assert {user: side.stands for user, side in sides.items()} == {"hd": False, "bookkeeper": True}
    path.write_text(f'Bookie {{ {MODULE} required user_bookkeeper="another"; }};')
    assert watched.reload()
    assert not sides["bookkeeper"].stands


def come_in_as(provider: Provider, user: str) -> Exchange:
    there, here = provider.begin(), ClientsSide(user, digest_of(user, SECRET))
    here.step(there.step(here.step(there.step(here.step(b"")))))
    assert there.complete
    assert there.stands
    return there
