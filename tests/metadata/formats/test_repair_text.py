"""Shortages, locks, votes and times of checks: the bytes that Apache BookKeeper writes and reads."""

import pytest

from quire.metadata.formats import repair_text

# SPDX-License-Identifier: Apache-2.0

TIME = 1_700_000_000_000


@pytest.mark.parametrize(
    ("missing", "since_ms", "data"),
    [
        (["bk1:3181", "bk2:3181"], TIME, b'replica: "bk1:3181"\nreplica: "bk2:3181"\nctime: 1700000000000\n'),
        (["bk1:3181"], None, b'replica: "bk1:3181"\n'),
        ([], TIME, b"ctime: 1700000000000\n"),
        ([], None, b""),
        (["a\"'\\\x07\n\x7fä:1"], None, b'replica: "a\\"\\\'\\\\\\a\\n\\177\\303\\244:1"\n'),
    ],
)
def test_a_shortage_as_java_prints_it(missing: list[str], since_ms: int | None, data: bytes) -> None:
    """Bookies first, each on a line, then the time; the same comes back."""
    assert repair_text.encode_shortage(missing, since_ms) == data
    assert repair_text.decode_shortage(7, data) == (tuple(missing), since_ms)


def test_other_text_that_java_takes() -> None:
    """Fields in another order, in one line, and in single quotes."""
    found = repair_text.decode_shortage(7, b"ctime: 5 replica: 'a:1' replica: \"b:1\"")
    assert found == (("a:1", "b:1"), 5)


def test_what_a_newer_one_says_beside_it() -> None:
    """Fields that nobody knows here are passed over, and the bookies are read."""
    data = b'replica: "a:1"\nother: "x"\nmore { deep { a: [1, 2] } }\nctime: 5\n'
    assert repair_text.decode_shortage(7, data) == (("a:1",), 5)


@pytest.mark.parametrize(
    "data", [b"replica", b'replica: "a:1', b"\xff", b'replica: "\\377"\n', b"a {" * 5000, b"a <" * 999 + b">" * 999]
)
def test_a_shortage_that_can_not_be_read_is_still_one(data: bytes) -> None:
    """It names no bookie, so that it can be taken, looked at and ended."""
    assert repair_text.decode_shortage(7, data) == ((), None)


def test_an_owner_as_java_prints_it() -> None:
    """Of a lock or a vote; what can't be read is nobody's."""
    assert repair_text.encode_owner("bk1:3181") == b'bookieId: "bk1:3181"\n'
    assert repair_text.decode_owner(b'bookieId: "bk1:3181"\n') == "bk1:3181"
    for data in (b"", b"bookie", b'bookieId: "\\377"'):
        assert repair_text.decode_owner(data) == ""


def test_the_time_of_a_check() -> None:
    """Binary; none where nothing was written, or something else."""
    assert repair_text.encode_check_time(TIME) == bytes.fromhex("0880d095ffbc31")
    assert repair_text.decode_check_time(bytes.fromhex("0880d095ffbc31")) == TIME
    for data in (b"", b"\x08", b"text\n"):
        assert repair_text.decode_check_time(data) is None
