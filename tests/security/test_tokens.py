"""Files of tokens: what may be in them, who may read them, and that they are read again."""

import os
import stat
from pathlib import Path

import pytest
from twisted.logger import capturedLogs

from quire.conf.properties import ConfigurationError
from quire.security import tokens
from quire.security.tokens import Tokens, make_token_file, tokens_in

# SPDX-License-Identifier: Apache-2.0

OLD, NEW = b"old-old-old-old-old", b"new-new-new-new-new"


def written(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_one_that_is_made(tmp_path: Path) -> None:
    """It has one token, another each time, and is for its owner alone, whatever was there."""
    path = written(tmp_path / "t", b"", 0o666)
    written(tmp_path / "t.new", b"", 0o666)
    make_token_file(str(path))
    (first,) = tokens_in(str(path), "key")
    make_token_file(str(path))
    assert tokens_in(str(path), "key") != [first]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["t"]


def test_lines(tmp_path: Path) -> None:
    """One token a line; remarks and empty lines are passed over; all of them are good."""
    path = written(tmp_path / "t", b"# ours\r\n\n " + OLD + b" \r\n" + NEW)
    assert tokens_in(str(path), "key") == [OLD, NEW]
    found = Tokens(str(path), "key")
    assert found.has(OLD)
    assert found.has(NEW)
    assert not any(found.has(each) for each in (b"", b"# ours", OLD[:-1], OLD + b"x", OLD + b"\n" + NEW))


@pytest.mark.parametrize(
    ("data", "mode", "said"),
    [
        (OLD, 0o604, "chmod 600"),
        (OLD, 0o620, "chmod 600"),
        (b"", 0o600, "no token in it"),
        (b"# nothing\n", 0o600, "no token in it"),
        (b"short", 0o600, ":1"),
        (OLD + b"\ntwo words are no token", 0o600, ":2"),
        (b"root:x:0:0:root:/root:/bin/bash", 0o600, "is no token"),
    ],
)
def test_what_is_refused(tmp_path: Path, data: bytes, mode: int, said: str) -> None:
    """The file, the key and what to do are named; nothing of what is in it."""
    path = written(tmp_path / "t", data, mode)
    with pytest.raises(ConfigurationError) as refused:
        tokens_in(str(path), "adminTokenFile")
    text = str(refused.value)
    assert said in text
    assert f"{path}" in text
    assert "(adminTokenFile)" in text
    assert not any(line in text for line in data.decode().splitlines() if len(line) > 5)


def test_no_file(tmp_path: Path) -> None:
    """It is missing, or a directory; a pipe does not make anybody wait."""
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ConfigurationError, match="adminTokenFile"):
            Tokens(str(path), "adminTokenFile")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigurationError, match="is no file"):
        Tokens(str(tmp_path / "pipe"), "adminTokenFile")


def test_a_group_may_read(tmp_path: Path) -> None:
    """That of a Prometheus server, say."""
    assert Tokens(str(written(tmp_path / "t", OLD, 0o640)), "key").has(OLD)


def test_it_is_read_again(tmp_path: Path) -> None:
    """A new token opens at once and the old one nothing; a file that is gone or open to others opens nothing."""
    path = written(tmp_path / "t", OLD)
    found = Tokens(str(path), "key")
    written(tmp_path / "n", NEW).rename(path)
    assert (found.has(OLD), found.has(NEW)) == (False, True)
    with capturedLogs() as logged:
        path.chmod(0o644)
        assert not found.has(NEW)
        assert not found.has(NEW)
    assert len(logged) == 1, "said once"
    path.chmod(0o600)
    assert found.has(NEW)
    path.unlink()
    assert not found.has(NEW)
    written(path, OLD)
    assert found.has(OLD)


def test_comparisons_take_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is made by hmac, over digests of one length, and all are made whichever is right."""
    made: list[tuple[int, int]] = []
    real = tokens.hmac.compare_digest

    def compare(one: bytes, other: bytes) -> bool:
        made.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(tokens.hmac, "compare_digest", compare)
    found = Tokens(str(written(tmp_path / "t", OLD + b"\n" + NEW)), "key")
    for shown in (OLD, NEW, b"x", b""):
        found.has(shown)
    assert made == [(32, 32)] * 8


def test_it_keeps_none(tmp_path: Path) -> None:
    """Neither its repr nor its attributes have a token."""
    found = Tokens(str(written(tmp_path / "t", OLD)), "key")
    assert found.has(OLD)
    assert OLD.decode() not in repr(found) + repr(vars(found))
