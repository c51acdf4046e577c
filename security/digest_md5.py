"""
SASL DIGEST-MD5 (RFC 2831) as Apache's bookies, their clients and ZooKeeper speak it: proof of a password without
sending it.

    bookie   realm="bookkeeper",nonce="…",charset=utf-8,algorithm=md5-sess
    client   charset=utf-8,username="…",realm="bookkeeper",nonce="…",nc=00000001,cnonce="…",
             digest-uri="bookkeeper/bookkeeper",maxbuf=65536,response=32 hex digits,qop=auth,authzid="…"
    bookie   rspauth=32 hex digits

Knows: both sides of one exchange; neither has a second one by what was said in the first.  With ZooKeeper realm and
digest-uri are others, and the client's side is all that is needed.
Does not know: frames, where passwords come from (`jaas`), what happens to who is refused.

Safety: a nonce is good for one exchange, so what was recorded of another proves nothing.  Digests are compared in
constant time, and a user who is unknown costs what a wrong password costs and is told the same.  Passwords are kept
only as their digests, which are as good as they are, and neither is in any text.  It protects the password from who
only listens as well as the password is hard to guess, and nothing of what follows: TLS does.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import md5
from hmac import compare_digest
from secrets import token_bytes
from typing import NamedTuple

from quire.security.exchange import NotAuthenticated

# SPDX-License-Identifier: Apache-2.0

NONCE_BYTES = 30
COUNT = "00000001"  # the first, and only, use of a nonce
TOKEN_BYTES_MAX = 2048  # RFC 2831: a challenge is shorter; no answer needs more
HEX = re.compile("[0-9a-f]{32}")
# One directive and the commas behind it; between them there may be blanks.
DIRECTIVE = re.compile(
    rb"""[ \t\r\n]*(?P<name>[a-zA-Z0-9_.-]+)[ \t\r\n]*=[ \t\r\n]*
    (?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^\s",=\x00-\x1f\x7f]+))[ \t\r\n]*(?:,[ \t\r\n,]*|$)""",
    re.VERBOSE | re.DOTALL,
)
ESCAPED = re.compile(rb"\\(.)", re.DOTALL)

Directives = dict[str, list[bytes]]
Nonces = Callable[[], str]


class Service(NamedTuple):
    """The service that a password is for.  `uri`: protocol and server, the same for all servers."""

    realm: str
    uri: str


BOOKIES = Service("bookkeeper", "bookkeeper/bookkeeper")
ZOOKEEPER = Service("zk-sasl-md5", "zookeeper/zk-sasl-md5")


def fresh_nonce() -> str:
    """A text that nobody can foresee and nobody had before."""
    return b64encode(token_bytes(NONCE_BYTES)).decode()


def digest_of(user: str, password: str, service: Service = BOOKIES) -> bytes:
    """The digest that stands for a password from here on; it is as secret as that."""
    return _md5(_hashed(user), _hashed(service.realm), _hashed(password))


@dataclass(frozen=True, slots=True)
class Session:
    """The values that both sides know after the client's answer; their digests are made of these."""

    digest: bytes = field(repr=False)
    nonce: str
    client_nonce: str
    authorised: str | None  # as whom the client wants to act
    uri: str = BOOKIES.uri

    @property
    def response(self) -> str:
        """The client's proof."""
        return self._proof("AUTHENTICATE:")

    @property
    def rspauth(self) -> str:
        """The bookie's."""
        return self._proof(":")

    def _proof(self, verb: str) -> str:
        nonces = [self.nonce.encode(), self.client_nonce.encode()]
        acting = [] if self.authorised is None else [self.authorised.encode()]
        first = _md5(self.digest, *nonces, *acting).hex()
        second = md5(f"{verb}{self.uri}".encode(), usedforsecurity=False).hexdigest()
        return _md5(*(part.encode() for part in (first, self.nonce, COUNT, self.client_nonce, "auth", second))).hex()


class Users:
    """The users that may come in."""

    def __init__(self, passwords: Mapping[str, str] = {}, allowed: Iterable[str] = ()) -> None:
        """`allowed`: of them, those who may."""
        self._nobodys = token_bytes(16)
        self.become(passwords, allowed)

    def become(self, passwords: Mapping[str, str], allowed: Iterable[str]) -> None:
        """Takes these users in the place of those before."""
        self._digests = {user: digest_of(user, passwords[user]) for user in allowed}

    def digest(self, user: str) -> bytes:
        """One that nobody can meet for a user who is unknown."""
        return self._digests.get(user, self._nobodys)


class BookiesSide:
    """One client's way in: an empty token, then its answer.  `user`: who it is, once `complete`."""

    def __init__(self, users: Users, nonces: Nonces = fresh_nonce) -> None:
        self.complete = False
        self.user = ""
        self._users = users
        self._nonce = nonces()
        self._challenged = False
        self._tried = False
        self._digest = b""

    @property
    def stands(self) -> bool:
        return self.complete and compare_digest(self._users.digest(self.user), self._digest)

    def step(self, token: bytes) -> bytes:
        if self._challenged:
            if self._tried:
                raise NotAuthenticated("it tries a second time on one connection")
            self._tried = True
            return self._judge(token)
        if token:
            raise NotAuthenticated("its first token is not empty, as it is in DIGEST-MD5")
        self._challenged = True
        return f'realm="{BOOKIES.realm}",nonce="{self._nonce}",charset=utf-8,algorithm=md5-sess'.encode()

    def _judge(self, token: bytes) -> bytes:
        said = directives(token)
        encoding = "utf-8" if _charset(said) else "latin-1"
        user = _text(_one(said, "username"), encoding)
        for name, expected in (
            ("realm", BOOKIES.realm),
            ("nonce", self._nonce),
            ("nc", COUNT),
            ("digest-uri", BOOKIES.uri),
        ):
            if _text(_one(said, name), encoding) != expected:
                raise NotAuthenticated(f"its {name} is not what it has to be")
        if _one(said, "qop", b"auth") != b"auth":
            raise NotAuthenticated("it asks for a qop other than auth")
        client_nonce = _text(_one(said, "cnonce"), "ascii")
        authorised = _text(_one(said, "authzid"), "utf-8") if "authzid" in said else None
        response = _text(_one(said, "response"), "ascii")
        digest = self._users.digest(user)
        session = Session(digest, self._nonce, client_nonce, authorised)
        if not HEX.fullmatch(response) or not compare_digest(session.response, response):
            raise NotAuthenticated(f"user {_shown(user)} is unknown or not allowed, or the password is wrong")
        if authorised not in (None, user):
            raise NotAuthenticated(f"user {_shown(user)} wants to act as somebody else")
        self.user = user
        self._digest = digest
        self.complete = True
        return f"rspauth={session.rspauth}".encode()


class ClientsSide:
    """The way into one server: what to say first is the answer to an empty token."""

    stands = True  # nothing that a client knows of its server changes

    def __init__(self, user: str, digest: bytes, nonces: Nonces = fresh_nonce, service: Service = BOOKIES) -> None:
        self.complete = False
        self.user = ""
        self._user = user
        self._digest = digest
        self._service = service
        self._nonces = nonces
        self._begun = False
        self._session: Session | None = None

    def step(self, token: bytes) -> bytes:
        if not self._begun:
            self._begun = True
            return b""
        if self._session is None:
            return self._answer(token)
        said = directives(token)
        if not compare_digest(_one(said, "rspauth"), self._session.rspauth.encode()):
            raise NotAuthenticated("it does not know our password: it is not the server that it says it is")
        self.complete = True
        return b""

    def _answer(self, token: bytes) -> bytes:
        said = directives(token)
        if _one(said, "algorithm") != b"md5-sess":
            raise NotAuthenticated("it asks for an algorithm other than md5-sess")
        if not any(b"auth" in offer.replace(b" ", b"").split(b",") for offer in said.get("qop", [b"auth"])):
            raise NotAuthenticated("it does not offer qop auth")
        realm, uri = self._service
        if _text(_one(said, "realm"), "utf-8") != realm:
            raise NotAuthenticated(f"its realm is not {realm}")
        with_charset = _charset(said)
        encoding = "utf-8" if with_charset else "latin-1"
        nonce = _text(_one(said, "nonce"), "ascii")
        if not nonce or '"' in nonce or "\\" in nonce:
            raise NotAuthenticated("its nonce is not usable")
        user = self._user
        session = self._session = Session(self._digest, nonce, self._nonces(), user, uri)
        try:
            quoted = _quoted(user).encode(encoding)
        except UnicodeEncodeError:
            raise NotAuthenticated("our user's name can't be written without its charset=utf-8") from None
        parts = [
            b'username="%b",realm="%b"' % (quoted, realm.encode()),
            f'nonce="{nonce}",nc={COUNT},cnonce="{session.client_nonce}",digest-uri="{uri}"'.encode(),
            f"maxbuf=65536,response={session.response},qop=auth".encode(),
            f'authzid="{_quoted(user)}"'.encode(),
        ]
        return b",".join([b"charset=utf-8", *parts] if with_charset else parts)


def directives(token: bytes) -> Directives:
    """The values of each name, as they came; names in lower case, quotation marks and escapes undone."""
    if len(token) > TOKEN_BYTES_MAX:
        raise NotAuthenticated(f"a token of {len(token)} bytes: {TOKEN_BYTES_MAX} are the most")
    found: Directives = {}
    at = 0
    while at < len(token):
        match = DIRECTIVE.match(token, at)
        if match is None:
            raise NotAuthenticated("a token that is no list of directives")
        quoted = match["quoted"]
        value = match["plain"] if quoted is None else ESCAPED.sub(rb"\1", quoted)
        found.setdefault(match["name"].decode().lower(), []).append(value)
        at = match.end()
    return found


def _one(said: Directives, name: str, default: bytes | None = None) -> bytes:
    values = said.get(name, [] if default is None else [default])
    if len(values) != 1:
        raise NotAuthenticated(f"{name} is there {len(values)} times in a token, and has to be once")
    return values[0]


def _charset(said: Directives) -> bool:
    if "charset" not in said:
        return False
    if _one(said, "charset").lower() != b"utf-8":
        raise NotAuthenticated("it asks for a charset other than utf-8")
    return True


def _text(value: bytes, encoding: str) -> str:
    try:
        return value.decode(encoding)
    except UnicodeDecodeError:
        raise NotAuthenticated(f"a token with text that is not {encoding}") from None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _shown(user: str) -> str:
    return repr(user[:64])


def _hashed(text: str) -> bytes:
    """A name or password as it goes into a digest: in Latin-1 where that has all of it, also with charset=utf-8."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8")


def _md5(*parts: bytes) -> bytes:
    return md5(b":".join(parts), usedforsecurity=False).digest()
