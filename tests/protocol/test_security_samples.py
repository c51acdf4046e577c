"""
START_TLS and AUTH as Apache's client and bookie said them to each other (`tests/vectors/wire_security.jsonl`, captured
by `tests/interop/test_security_matrix.py`): our codec says the same bytes, and both sides of our exchange the same
tokens.
"""

import re

import pytest

from quire.protocol import v2, v3, wire
from quire.protocol.messages import Auth, AuthReply, StartTls, StatusReply
from quire.security.digest_md5 import BookiesSide, ClientsSide, Users, digest_of
from quire.security.exchange import NotAuthenticated
from tests.protocol.samples import rows
from tests.protocol.security_samples import PASSWORD, USER, Frame, answer, request

# SPDX-License-Identifier: Apache-2.0

SCENARIOS: dict[str, list[Frame]] = {}
for _row in rows("wire_security"):
    SCENARIOS.setdefault(_row["scenario"], []).append(Frame(_row["direction"], bytes.fromhex(_row["frame"])))
PROVED = [name for name in SCENARIOS if "shown password" in name]


def tokens(name: str) -> tuple[list[bytes], list[bytes]]:
    """The client's, and the bookie's."""
    asked = [request(frame.data) for frame in SCENARIOS[name] if frame.direction == "request"]
    said = [answer(frame.data) for frame in SCENARIOS[name] if frame.direction == "response"]
    return (
        [each.payload for each in asked if isinstance(each, Auth)],
        [each.payload for each in said if isinstance(each, AuthReply)],
    )


def fresh(token: bytes, name: bytes) -> str:
    found = re.search(name + rb'="([^"]+)"', token)
    assert found is not None
    return found[1].decode()


def test_there_are_vectors_of_both_versions() -> None:
    """Of each kind, so that none below is empty."""
    for kind in ("shown tls, ", "shown tls certificate, ", "shown password, ", "shown wrong, "):
        for version in ("v2", "v3"):
            assert [name for name in SCENARIOS if name.endswith(f"{kind}{version}")], (kind, version)


@pytest.mark.parametrize("name", SCENARIOS)
def test_our_codec_says_the_same(name: str) -> None:
    """Each request and each answer, decoded and encoded again, is the same bytes."""
    asked = [frame.data for frame in SCENARIOS[name] if frame.direction == "request"]
    requests = [request(data) for data in asked]
    for each, data in zip(requests, asked, strict=True):
        assert isinstance(each, Auth | StartTls)
        by_v2 = isinstance(each, Auth) and each.txn is None
        assert (v2.pack_auth(each) if by_v2 else v3.pack_request(each)) == data  # type: ignore[arg-type]
    for frame in SCENARIOS[name]:
        if frame.direction == "response":
            reply = answer(frame.data)
            of = next(each for each in requests if getattr(each, "txn", None) == getattr(reply, "txn", None))
            if isinstance(reply, StatusReply):
                assert wire.refusal(of, reply.status) == frame.data
            else:
                assert isinstance(reply, AuthReply)
                assert wire.answer(of, reply) == frame.data


@pytest.mark.parametrize("name", PROVED)
def test_both_sides_of_an_exchange(name: str) -> None:
    """With the nonces of the capture our client says what Java's said, and our bookie what Apache's did."""
    asked, said = tokens(name)
    first, proof, last = asked[:3]
    challenge, rspauth = said[:2]
    assert (first, last) == (b"", b"")
    client = ClientsSide(USER, digest_of(USER, PASSWORD), lambda: fresh(proof, b"cnonce"))
    bookie = BookiesSide(Users({USER: PASSWORD}, [USER]), lambda: fresh(challenge, b"nonce"))
    assert client.step(b"") == first
    assert bookie.step(first) == challenge
    assert client.step(challenge) == proof
    assert bookie.step(proof) == rspauth
    assert client.step(rspauth) == last
    assert client.complete
    assert bookie.complete


def test_a_wrong_password_of_javas_client() -> None:
    """Is refused."""
    refused = [name for name in SCENARIOS if "shown wrong" in name]
    assert refused
    for name in refused:
        asked, said = tokens(name)
        bookie = BookiesSide(Users({USER: PASSWORD}, [USER]), lambda said=said: fresh(said[0], b"nonce"))  # type: ignore[misc]
        bookie.step(asked[0])
        with pytest.raises(NotAuthenticated):
            bookie.step(asked[1])
