"""DIGEST-MD5: a session of the JDK's, byte for byte, and every answer that must not be taken."""

import re
from collections.abc import Callable
from itertools import count

import pytest

from quire.security.digest_md5 import (
    TOKEN_BYTES_MAX,
    BookiesSide,
    ClientsSide,
    Session,
    Users,
    digest_of,
    directives,
    fresh_nonce,
)
from quire.security.exchange import NotAuthenticated

# SPDX-License-Identifier: Apache-2.0

# Of JDK 17's client and bookie, recorded.
USER, PASSWORD = "hd", "testpwd"
NONCE, CNONCE = "QqGGiSxdgYw+UCTAp1exrujfutQfTyUAIfgAzZhZ", "aAgs7LFhmKKo4qZGMqcrThusKxF8WnTKTeZ2zeVY"
CHALLENGE = f'realm="bookkeeper",nonce="{NONCE}",charset=utf-8,algorithm=md5-sess'.encode()
RESPONSE = "9aba26b52d511e117964e162f48efdbe"
ANSWER = (
    f'charset=utf-8,username="hd",realm="bookkeeper",nonce="{NONCE}",nc=00000001,cnonce="{CNONCE}",'
    f'digest-uri="bookkeeper/bookkeeper",maxbuf=65536,response={RESPONSE},qop=auth,authzid="hd"'
).encode()
RSPAUTH = b"rspauth=34244a90978ec8387c04adb22b948c3f"


def users(**passwords: str) -> Users:
    found = {USER: PASSWORD, **passwords}
    return Users(found, found)


def bookies(known: Users | None = None) -> BookiesSide:
    """A bookie's side that has sent the recorded challenge."""
    side = BookiesSide(known or users(), lambda: NONCE)
    assert side.step(b"") == CHALLENGE
    return side


def clients(user: str = USER, password: str = PASSWORD) -> ClientsSide:
    side = ClientsSide(user, digest_of(user, password), lambda: CNONCE)
    assert side.step(b"") == b""
    return side


def test_the_recorded_session_from_both_sides() -> None:
    """Each side sends what the JDK's sent, and ends where it ended."""
    bookie, client = bookies(), clients()
    assert client.step(CHALLENGE) == ANSWER
    assert not bookie.complete
    assert bookie.step(ANSWER) == RSPAUTH
    assert (bookie.complete, bookie.user) == (True, USER)
    assert not client.complete
    assert client.step(RSPAUTH) == b""
    assert client.complete


@pytest.mark.parametrize(
    ("user", "password", "cnonce", "response", "rspauth"),
    [
        (
            "zoë", "pässword", "wCTiTtumOeZFK7cIv5tTeSiWmNgCbi0UHKnq/n/Z",
            "1aaa36e88a1876b1592f7f7687c62a71", "48f90676b27cfbaacacc2c5748963f3f",
        ),
        (
            "пользователь", "пароль", "SAoM56hy4fFvygl2z6pi2TvuGoJrTHK8NlqizXkb",
            "77b0ada5c9a0fa900abe817ff3d68d1a", "d6b16753b6542faa5f4e5b6ed6ad1fd2",
        ),
    ],
)  # fmt: skip
def test_recorded_digests_in_and_out_of_latin_1(
    user: str, password: str, cnonce: str, response: str, rspauth: str
) -> None:
    """The JDK's client answered the challenge above so, and took this proof of the bookie's."""
    session = Session(digest_of(user, password), NONCE, cnonce, user)
    assert (session.response, session.rspauth) == (response, rspauth)


@pytest.mark.parametrize(
    ("user", "password"),
    [("hd", ""), ('a "b" \\c', 'x"y\\z'), ("zoë", "pässword"), ("пользователь", "пароль"), ("a,b=c", ",=,")],
)
def test_names_and_passwords_of_every_kind(user: str, password: str) -> None:
    """With marks of the format, and in and out of Latin-1."""
    bookie, client = BookiesSide(users(**{user: password})), ClientsSide(user, digest_of(user, password))
    token = b""
    while not client.complete:
        token = client.step(token)
        if not client.complete:
            token = bookie.step(token)
    assert bookie.user == user


def test_latin_1_where_the_charset_is_not_said() -> None:
    """A client that read no charset=utf-8 writes its name in Latin-1, or can't."""
    plain = CHALLENGE.replace(b"charset=utf-8,", b"")
    side = clients("zoë", "pw")
    answer = side.step(plain)
    assert b'username="zo\xeb"' in answer
    assert b"charset" not in answer
    known = bookies(users(**{"zoë": "pw"}))
    known.step(answer)
    assert known.user == "zoë"
    with pytest.raises(NotAuthenticated, match="can't be written"):
        clients("пользователь").step(plain)


def test_without_an_authzid_the_user_acts_as_itself() -> None:
    """Other clients than the JDK's send none; the digest is then without it."""
    session = Session(digest_of(USER, PASSWORD), NONCE, CNONCE, None)
    answer = ANSWER.replace(b',authzid="hd"', b"").replace(RESPONSE.encode(), session.response.encode())
    bookie = bookies()
    assert bookie.step(answer) == f"rspauth={session.rspauth}".encode()
    assert bookie.user == USER


def signed(**changed: str) -> bytes:
    """An answer with other values whose digest fits them."""
    said = {"nonce": NONCE, "cnonce": CNONCE, "authzid": USER, **changed}
    session = Session(digest_of(USER, PASSWORD), said["nonce"], said["cnonce"], said["authzid"])
    text = ANSWER.decode().replace(RESPONSE, session.response)
    for name in ("nonce", "cnonce", "authzid"):
        text = re.sub(rf'\b{name}="[^"]*"', f'{name}="{said[name]}"', text)
    return text.encode()


def without(name: str) -> bytes:
    return re.sub(rf',{name}=("[^"]*"|[^,]*)'.encode(), b"", ANSWER)


def twice(name: str) -> bytes:
    found = re.search(rf',{name}=("[^"]*"|[^,]*)'.encode(), ANSWER)
    assert found is not None
    return ANSWER + found[0]


def instead(old: str, new: str) -> bytes:
    assert old.encode() in ANSWER
    return ANSWER.replace(old.encode(), new.encode())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (instead(RESPONSE, RESPONSE[:-1] + "f"), "unknown or not allowed, or the password is wrong"),
        (instead(RESPONSE, RESPONSE[:-1]), "unknown or not allowed, or the password is wrong"),
        (instead(RESPONSE, "é" * 16), "not ascii"),
        (instead('username="hd"', 'username="nobody"'), "unknown or not allowed, or the password is wrong"),
        (signed(nonce="another"), "its nonce"),
        (signed(authzid="somebody"), "act as somebody else"),
        (instead("nc=00000001", "nc=00000002"), "its nc"),
        (instead('realm="bookkeeper"', 'realm="other"'), "its realm"),
        (instead("bookkeeper/bookkeeper", "bookkeeper/other"), "its digest-uri"),
        (instead("qop=auth", "qop=auth-int"), "qop other than auth"),
        (instead("charset=utf-8", "charset=latin-1"), "charset"),
        (ANSWER.replace(b'username="hd"', b'username="\xff"'), "not utf-8"),
        *((without(name), f"^{name} is there 0 times") for name in ("username", "realm", "nonce", "nc", "cnonce")),
        *((without(name), f"^{name} is there 0 times") for name in ("digest-uri", "response")),
        *((twice(name), f"^{name} is there 2 times") for name in ("username", "nonce", "response", "qop", "authzid")),
        (b"", "is there 0 times"),
        (b'username="hd', "no list of directives"),
        (b"username", "no list of directives"),
        (b"\0" * 40, "no list of directives"),
        (b"a=b," * TOKEN_BYTES_MAX, "are the most"),
    ],
)
def test_what_a_bookie_does_not_take(answer: bytes, said: str) -> None:
    """Nobody is let in, and what is said has no password or digest."""
    bookie = bookies()
    with pytest.raises(NotAuthenticated, match=said) as failure:
        bookie.step(answer)
    assert not bookie.complete
    assert bookie.user == ""
    assert PASSWORD not in str(failure.value)
    assert RESPONSE[:8] not in str(failure.value)


def test_a_recorded_answer_proves_nothing_to_another_connection() -> None:
    """Each has a nonce of its own."""
    nonces = count()
    other = BookiesSide(users(), lambda: f"nonce {next(nonces)}")
    other.step(b"")
    with pytest.raises(NotAuthenticated, match="nonce"):
        other.step(ANSWER)
    assert len({fresh_nonce() for _ in range(100)}) == 100


def test_there_is_one_try() -> None:
    """The right answer is none after a wrong one."""
    bookie = bookies()
    with pytest.raises(NotAuthenticated, match="unknown or not allowed"):
        bookie.step(instead(RESPONSE, "0" * 32))
    with pytest.raises(NotAuthenticated, match="a second time"):
        bookie.step(ANSWER)
    assert not bookie.complete


def test_an_answer_before_the_challenge() -> None:
    """There is nothing that it could be of."""
    with pytest.raises(NotAuthenticated, match="not empty"):
        BookiesSide(users(), lambda: NONCE).step(ANSWER)


def test_who_is_known_and_not_allowed_is_refused_as_an_unknown_one() -> None:
    """With the right password."""
    found = {USER: PASSWORD, "bookkeeper": "other"}
    with pytest.raises(NotAuthenticated, match="unknown or not allowed"):
        bookies(Users(found, ["bookkeeper"])).step(ANSWER)


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (CHALLENGE.replace(b"md5-sess", b"md5"), "algorithm"),
        (CHALLENGE.replace(b",algorithm=md5-sess", b""), "algorithm is there 0 times"),
        (CHALLENGE + b',qop="auth-int,auth-conf"', "qop auth"),
        (CHALLENGE.replace(b'realm="bookkeeper"', b'realm="elsewhere"'), "realm"),
        (CHALLENGE.replace(b'realm="bookkeeper",', b""), "realm is there 0 times"),
        (CHALLENGE + b',nonce="second"', "nonce is there 2 times"),
        (CHALLENGE.replace(NONCE.encode(), b""), "nonce"),
        (CHALLENGE.replace(NONCE.encode(), b'a\\"b'), "nonce"),
        (CHALLENGE.replace(b"utf-8", b"utf-16"), "charset"),
        (b"", "is there 0 times"),
        (b"what?", "no list"),
    ],
)
def test_what_a_client_does_not_answer(challenge: bytes, said: str) -> None:
    """A challenge that the RFC, or this one use of it, has not."""
    side = clients()
    with pytest.raises(NotAuthenticated, match=said):
        side.step(challenge)
    assert not side.complete


@pytest.mark.parametrize("qop", [b',qop="auth"', b',qop="auth-int, auth"'])
def test_a_challenge_may_offer_more(qop: bytes) -> None:
    """Of which auth is taken."""
    assert b"qop=auth" in clients().step(CHALLENGE + qop)


@pytest.mark.parametrize("token", [b"", b"rspauth=" + b"0" * 32, RSPAUTH + b"," + RSPAUTH, b"stale=true"])
def test_a_bookie_that_does_not_know_the_password(token: bytes) -> None:
    """Is none of ours."""
    side = clients()
    side.step(CHALLENGE)
    with pytest.raises(NotAuthenticated):
        side.step(token)
    assert not side.complete


def test_directives_as_they_may_be_written() -> None:
    """Blanks around them, empty ones between them, names in any case."""
    assert directives(b' A = "x, \\"y\\"" ,, b=c,\r\n a=2 ') == {"a": [b'x, "y"', b"2"], "b": [b"c"]}


@pytest.mark.parametrize("make", [lambda: Users({"u": PASSWORD}, ["u"]), clients, bookies], ids=["users", "c", "b"])
def test_nothing_shows_a_password_or_its_digest(make: Callable[[], object]) -> None:
    """Nor does what an exchange is made of."""
    digest = digest_of(USER, PASSWORD)
    text = repr(make()) + repr(Session(digest, NONCE, CNONCE, USER))
    assert PASSWORD not in text
    assert repr(digest) not in text
