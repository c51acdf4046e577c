"""New certificates without a restart: by time, on demand, and never a broken one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from quire.conf.properties import ConfigurationError
from quire.security.credentials import Credentials
from tests.security.authority import Authority
from tests.security.wires import bookie_options, client_options

# SPDX-License-Identifier: Apache-2.0


@contextmanager
def alarms() -> Iterator[list[str]]:
    """What is logged as critical meanwhile."""
    lines: list[str] = []

    def observe(event: LogEvent) -> None:
        if event["log_level"].name == "critical":
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(observe)
    try:
        yield lines
    finally:
        globalLogPublisher.removeObserver(observe)


def test_changed_files_are_read_when_it_is_time(tmp_path: Path) -> None:
    """Not before, and not if nothing has changed."""
    clock, authority = Clock(), Authority(tmp_path)
    credentials = Credentials(bookie_options(**authority.issue("b").keys, tls_refresh_s=60), clock.seconds)
    first = credentials.expires
    clock.advance(61)
    credentials.files.refresh()
    assert credentials.files.reloads == 0
    authority.issue("b", expired=True)
    clock.advance(59)
    credentials.files.refresh()
    assert credentials.expires == first
    clock.advance(2)
    credentials.files.refresh()
    assert credentials.files.reloads == 1
    assert credentials.expires < first


def test_without_a_time_only_on_demand(tmp_path: Path) -> None:
    """`tlsCertFilesRefreshDurationSeconds=0`; `reload` is what SIGHUP calls."""
    clock, authority = Clock(), Authority(tmp_path)
    credentials = Credentials(bookie_options(**authority.issue("b").keys, tls_refresh_s=0), clock.seconds)
    first = credentials.expires
    authority.issue("b", expired=True)
    clock.advance(1e6)
    credentials.files.refresh()
    assert credentials.expires == first
    credentials.files.reload()
    assert credentials.expires < first


@pytest.mark.parametrize("what", ["cut", "gone", "other key"])
def test_broken_files_change_nothing_and_are_an_alarm(tmp_path: Path, what: str) -> None:
    """One alarm for each change; when they are whole again they serve, and the alarm is over."""
    clock, authority = Clock(), Authority(tmp_path)
    pair = authority.issue("b")
    credentials = Credentials(bookie_options(**pair.keys, tls_refresh_s=1), clock.seconds)
    first = credentials.expires
    key = Path(pair.key)
    with alarms() as lines:
        if what == "gone":
            os.unlink(key)
        else:
            key.write_bytes(key.read_bytes()[:50] if what == "cut" else Path(authority.issue("c").key).read_bytes())
        for _ in range(5):
            clock.advance(2)
            credentials.files.refresh()
        assert len(lines) == 1
        assert pair.key in lines[0]
        assert credentials.files.broken is not None
        assert credentials.expires == first
        authority.issue("b", expired=True)
        clock.advance(2)
        credentials.files.refresh()
    assert credentials.files.broken is None
    assert credentials.expires < first


def test_files_that_are_broken_to_begin_with(tmp_path: Path) -> None:
    """There is nothing to go on with."""
    pair = Authority(tmp_path).issue("b")
    Path(pair.key).write_bytes(b"")
    with pytest.raises(ConfigurationError, match="tlsKeyStore"):
        Credentials(bookie_options(**pair.keys), Clock().seconds)


def test_no_key_in_a_repr(tmp_path: Path) -> None:
    """Of what holds it."""
    authority = Authority(tmp_path)
    pair = authority.issue("c")
    options = client_options(tls_trust=authority.trust, tls_client_certificates=True, **pair.keys)
    credentials = Credentials(options, Clock().seconds)
    secret = Path(pair.key).read_text().splitlines()[1]
    assert secret not in f"{credentials!r} {vars(credentials)!r} {options!r}"
