"""The text of a cookie, beside what real bookies wrote (metadata-rules.md 6.1)."""

import json
from pathlib import Path

import pytest

from quire.bookie.lifecycle.cookie import Cookie, summary
from quire.bookie.lifecycle.ids import IdentityError
from tests.bookie.fakes.home import CLUSTER

# SPDX-License-Identifier: Apache-2.0

SPEC_TEXT = (
    b'5\nbookieHost: "h1:3181"\njournalDir: "/j1,/j2"\nledgerDirs: "2\\t/l1\\t/l2"\ninstanceId: '
    b'"48a562a9-60b0-4d14-a6c2-f598c2df360b"\nindexDirs: "1\\t/i1"\n'
)
SPEC_COOKIE = Cookie("h1:3181", "/j1,/j2", "2\t/l1\t/l2", CLUSTER, "1\t/i1")


def test_a_known_text_both_ways() -> None:
    """A cookie is encoded to and decoded from exactly the bytes that Apache BookKeeper writes."""
    assert SPEC_COOKIE.encode() == SPEC_TEXT
    assert Cookie.decode(SPEC_TEXT, "f") == SPEC_COOKIE


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].joinpath("vectors").glob("*_znodes_running.jsonl")))
def test_cookies_that_a_real_bookie_wrote(path: Path) -> None:
    """Apache's bytes decode, and encode to the same."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    cookies = [
        (row["path"].rsplit("/", 1)[1], bytes.fromhex(row["data"])) for row in rows if "/cookies/" in row["path"]
    ]
    assert cookies
    for bookie, data in cookies:
        cookie = Cookie.decode(data, bookie)
        assert cookie.bookie == bookie
        assert cookie.encode() == data


def test_older_layouts_are_read() -> None:
    """Layouts 3 and 4, and text with all fields in one line, are decoded."""
    assert Cookie.decode(b"3\nh:1\n/j\n1\t/l\n", "f") == Cookie("h:1", "/j", "1\t/l")
    assert Cookie.decode(SPEC_TEXT.replace(b"5\n", b"4\n", 1), "f") == SPEC_COOKIE
    one_line = b'5\n bookieHost:"h:1" journalDir: "/j" ledgerDirs: "1\\t/l" '
    assert Cookie.decode(one_line, "f") == Cookie("h:1", "/j", "1\t/l")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"2\nx",
        b"1\n",
        b"hello\n",
        b"3\na\nb\n",
        b'5\nbookieHost: "h"\n',
        b"5\nbookieHost: h\n",
        b'5\nbookieHost: "h\n',
    ],
)
def test_what_is_no_cookie_is_named(data: bytes) -> None:
    """An error about a malformed cookie names the file."""
    with pytest.raises(IdentityError, match="/d/VERSION"):
        Cookie.decode(data, "/d/VERSION")


def test_quoting() -> None:
    """Protobuf's text escapes, octal ones too."""
    odd = Cookie('a"b\\c\td\ne', "/j", "1\t/l")
    assert Cookie.decode(odd.encode(), "f") == odd
    octal = Cookie.decode(b'5\nbookieHost: "a\\011b" journalDir: "/\\303\\251" ledgerDirs: "1\\t/l"\n', "f")
    assert (octal.bookie, octal.journals) == ("a\tb", "/é")
    assert b'journalDir: "/\\303\\251"' in octal.encode()


def test_a_cookie_is_written_as_java_writes_it_and_read_as_older_versions_wrote_it() -> None:
    """
    Java names the apostrophe and bytes 7, 8, 11 and 12; older versions of quire left the one as it is and wrote the
    others in octal.
    """
    odd = Cookie("h:1", "/it's\a\b\v\f", "1\t/l")
    assert b'journalDir: "/it\\\'s\\a\\b\\v\\f"\n' in odd.encode()
    assert Cookie.decode(odd.encode(), "f") == odd
    older = b'5\nbookieHost: "h:1"\njournalDir: "/it\'s\\007\\010\\013\\014"\nledgerDirs: "1\\t/l"\n'
    assert Cookie.decode(older, "f") == odd
    with pytest.raises(IdentityError, match="/d/VERSION can't be read"):
        Cookie.decode(b'5\nbookieHost: "\\q" journalDir: "/j" ledgerDirs: "1\\t/l"\n', "/d/VERSION")


def test_summary() -> None:
    """A cookie's summary lists its directories by kind, without counts."""
    assert summary(SPEC_COOKIE) == {
        "bookie": "h1:3181",
        "journal_directories": ["/j1", "/j2"],
        "ledger_directories": ["/l1", "/l2"],
        "index_directories": ["/i1"],
        "instance_id": CLUSTER,
        "incarnation": None,
    }


def test_an_incarnation_is_a_comment_to_all_others() -> None:
    """
    A line that begins with # is none of the fields, wherever it stands; other comments, and a # inside a value, mean
    nothing.
    """
    cookie = SPEC_COOKIE.of("91c20a3fd04e5b77", "0d51f3c4a7b2e698")
    text = cookie.encode()
    assert text == SPEC_COOKIE.encode() + b"# incarnation: 91c20a3fd04e5b77\n# before: 0d51f3c4a7b2e698\n"
    assert Cookie.decode(text, "here") == cookie
    first, rest = text.split(b"\n", 1)
    odd = b"\n".join((first, b"# incarnation: none", b"  #", b"# before: 12", rest))
    assert Cookie.decode(odd, "here") == cookie
    assert Cookie.decode(Cookie("a", "/#j", "1\t/l # 1").encode(), "here") == Cookie("a", "/#j", "1\t/l # 1")
    assert not SPEC_COOKIE.differences(cookie, expansion=False)
