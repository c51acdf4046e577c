"""TLS on a connection: who is let in, what is said when not, and that no byte leaves before that is known."""

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.python.failure import Failure

from quire.protocol.frames import AT_ONCE_BYTES_MAX, send_at_once
from quire.security import stream
from quire.security.context import load
from quire.security.refusals import TlsRefused
from quire.security.stream import HANDSHAKE_BYTES_MAX, PIECE_BYTES, SecureStream, is_address, role_of
from tests.security.authority import Authority
from tests.security.wires import Pair, Side, Tcp, bookie_options, client_options

# SPDX-License-Identifier: Apache-2.0

ORGANISATION, UNIT = NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_sides_are_known(authority: Authority, version: str) -> None:
    """After the handshake both are told, and what is written arrives whole and unreadable on the way."""
    bookie = authority.issue("bookie").keys
    shown = {"tls_client_certificates": True, "tls_trust": authority.trust}
    pair = Pair(
        bookie_options(**bookie, **shown, tls_protocols=version),
        client_options(**authority.issue("client").keys, **shown),
    )
    assert pair.client.is_secured
    assert pair.bookie.is_secured
    assert pair.made.tls.get_protocol_version_name() == version
    pair.made.write(b"a secret " * 10_000)
    pair.carry()
    assert b"".join(pair.bookie.pieces) == b"a secret " * 10_000
    assert len(pair.bookie.pieces) == 1
    assert b"secret" not in pair.sent["client"]


@pytest.mark.parametrize("how", ["write", "write_at_once"])
@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_the_records_of_one_write_leave_together(authority: Authority, version: str, how: str) -> None:
    """As much as a socket is given at once; of more no larger pieces, and all of it arrives in order."""
    pair = Pair(
        bookie_options(**authority.issue("bookie").keys, tls_protocols=version),
        client_options(tls_trust=authority.trust, tls_protocols=version),
    )
    some, much = bytes(range(256)) * 200, bytes(range(256)) * 4000
    for data, pieces in ((b"a", 1), (some, 1), (much, -(-len(much) // PIECE_BYTES)), (b"", 0)):
        pair.client.tcp.written.clear()
        getattr(pair.made, how)(data)
        assert len(pair.client.tcp.written) == pieces
        assert all(len(piece) <= AT_ONCE_BYTES_MAX for piece in pair.client.tcp.written)
        pair.bookie.pieces.clear()
        pair.carry()
        assert b"".join(pair.bookie.pieces) == data


def test_what_is_written_at_once_goes_to_the_socket(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the way of `send_at_once`; what is not comes later, and both are read in order."""
    pair = Pair(bookie_options(**authority.issue("bookie").keys), client_options(tls_trust=authority.trust))
    asked: list[bytes] = []

    def now(transport: Tcp, data: bytes) -> None:
        asked.append(data)
        transport.write(data)

    monkeypatch.setattr(stream, "send_at_once", now)
    pair.made.write(b"first ")
    assert not asked
    send_at_once(pair.made, b"second")
    assert asked == pair.client.tcp.written[-1:]
    pair.carry()
    assert b"".join(pair.bookie.pieces) == b"first second"
    pair.made.abortConnection()
    send_at_once(pair.made, b"lost")
    assert len(asked) == 1


def test_it_closes_with_its_last_bytes(authority: Authority) -> None:
    """What was written before `loseConnection` arrives, and both sides end."""
    pair = Pair(bookie_options(**authority.issue("bookie").keys), client_options(tls_trust=authority.trust))
    pair.served.write(b"last")
    pair.served.loseConnection()
    pair.carry()
    assert pair.client.pieces == [b"last"]
    assert pair.client.lost is not None
    assert not isinstance(pair.client.lost, TlsRefused)


def test_nothing_is_written_before_and_after(authority: Authority, tmp_path: Path) -> None:
    """What is written to a stream whose other side is not known, or was not accepted, goes nowhere."""
    pair = Pair(bookie_options(**authority.issue("bookie").keys), client_options(tls_trust=authority.trust), "10.9.8.7")
    sent = pair.sent["client"]
    pair.made.write(b"a secret")
    pair.made.write_at_once(b"a secret")
    pair.carry()
    assert pair.sent["client"] == sent
    assert not pair.bookie.pieces
    assert not pair.client.is_secured


def refused(pair: Pair) -> tuple[str, str]:
    """What the client's owner is told, and the bookie's."""
    assert not pair.client.pieces
    assert not pair.bookie.pieces
    return str(pair.client.lost), str(pair.bookie.lost)


def test_an_expired_certificate(authority: Authority) -> None:
    """The client says whose it is and since when; the bookie says that its own has expired."""
    bookie = authority.issue("old-bookie", expired=True)
    told, there = refused(Pair(bookie_options(**bookie.keys), client_options(tls_trust=authority.trust)))
    assert "CN=old-bookie" in told
    assert "has expired on 20" in told
    assert "our certificate has expired" in there


def test_another_authority(authority: Authority, tmp_path: Path) -> None:
    """Both sides say that the authority is not trusted by the client."""
    other = Authority(tmp_path, "other")
    told, there = refused(Pair(bookie_options(**authority.issue("b").keys), client_options(tls_trust=other.trust)))
    assert "of an authority that is not trusted here" in told
    assert "it does not trust" in there


@pytest.mark.parametrize(("host", "names"), [("10.0.0.9", "127.0.0.1"), ("bookie9.example.org", "localhost")])
def test_another_host(authority: Authority, host: str, names: str) -> None:
    """The client names the host and those in the certificate; the bookie sees the connection end without a byte."""
    pair = Pair(bookie_options(**authority.issue("b").keys), client_options(tls_trust=authority.trust), host)
    told, _there = refused(pair)
    assert f"not for {host}" in told
    assert names in told
    assert isinstance(pair.client.lost, TlsRefused)


def test_another_host_where_that_is_not_looked_at(authority: Authority) -> None:
    """`tlsHostnameVerificationEnabled=false`."""
    options = client_options(tls_trust=authority.trust, tls_verify_host=False)
    assert Pair(bookie_options(**authority.issue("b").keys), options, "10.0.0.9").client.is_secured


def test_a_revoked_certificate(authority: Authority) -> None:
    """Of a bookie: the client refuses it, and one that is not on the list is taken."""
    bad, good = authority.issue("bad"), authority.issue("good")
    options = client_options(tls_trust=authority.trust, tls_revocations=authority.revoked(bad))
    told, there = refused(Pair(bookie_options(**bad.keys), options))
    assert "CN=bad" in told
    assert "is revoked" in told
    assert "our certificate is revoked" in there
    assert Pair(bookie_options(**good.keys), options).client.is_secured


def test_a_list_of_revocations_out_of_date(authority: Authority) -> None:
    """It says nothing of today, so nobody is let in."""
    options = client_options(tls_trust=authority.trust, tls_revocations=authority.revoked(out_of_date=True))
    told, _there = refused(Pair(bookie_options(**authority.issue("b").keys), options))
    assert "out of date" in told


def test_clients_that_a_bookie_refuses(authority: Authority, tmp_path: Path) -> None:
    """Without a certificate, with one of another authority, an expired and a revoked one: each side says why."""
    revoked = authority.issue("stolen")
    bookie = bookie_options(
        **authority.issue("b").keys,
        tls_trust=authority.trust,
        tls_client_certificates=True,
        tls_revocations=authority.revoked(revoked),
    )
    other = Authority(tmp_path, "other")
    cases = {
        "asks for a certificate": (None, "showed no certificate"),
        "does not trust": (other.issue("foreign"), "not trusted here"),
        "has expired": (authority.issue("old", expired=True), "has expired on"),
        "is revoked": (revoked, "is revoked"),
    }
    for ours, (pair, theirs) in cases.items():
        shown = {} if pair is None else {**pair.keys, "tls_client_certificates": True}
        told, there = refused(Pair(bookie, client_options(tls_trust=authority.trust, **shown)))
        assert ours in told
        assert theirs in there


def test_no_version_in_common(authority: Authority) -> None:
    """Both sides say so."""
    pair = Pair(
        bookie_options(**authority.issue("b").keys, tls_protocols="TLSv1.2"),
        client_options(tls_trust=authority.trust, tls_protocols="TLSv1.3"),
    )
    assert "tlsEnabledProtocols" in refused(pair)[0]


def test_an_attribute_that_is_missing_is_no_way_to_the_plain_transport(authority: Authority) -> None:
    """The hot path looks for a socket's own way of writing; a stream has none."""
    pair = Pair(bookie_options(**authority.issue("b").keys), client_options(tls_trust=authority.trust))
    for name in ("writeSomeData", "_tempDataBuffer", "dataBuffer", "socket"):
        assert not hasattr(pair.made, name)


def test_addresses_and_names() -> None:
    """An address is looked for among addresses only."""
    assert is_address("::1")
    assert is_address("10.0.0.1")
    assert not is_address("bookie1")


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What only the collector would free stays."""
    gc.disable()
    yield
    gc.enable()


def lost(pair: Pair) -> None:
    for tcp in (pair.bookie.tcp, pair.client.tcp):
        tcp.protocol.connectionLost(Failure(ConnectionLost()))  # type: ignore[attr-defined]


def closed(pair: Pair) -> None:
    pair.served.loseConnection()
    pair.carry()


def garbled(pair: Pair) -> None:
    pair.bookie.tcp.protocol.dataReceived(b"no TLS")  # type: ignore[attr-defined]
    lost(pair)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("end", [lost, closed, garbled])
def test_nothing_of_openssl_is_left_of_a_connection(authority: Authority, end: Callable[[Pair], None]) -> None:
    """Neither of one that ended well nor of the others; it is much, and the collector does not see how much."""
    pair = Pair(bookie_options(**authority.issue("bookie").keys), client_options(tls_trust=authority.trust))
    assert pair.client.is_secured
    held = [weakref.ref(stream.tls) for stream in (pair.served, pair.made)]
    end(pair)
    assert pair.client.lost is not None
    assert pair.bookie.lost is not None
    assert [tls() for tls in held] == [None, None]


@pytest.mark.usefixtures("no_collector")
def test_nothing_of_openssl_is_left_of_a_handshake_that_failed(authority: Authority, tmp_path: Path) -> None:
    """On the side that refused, and on the other."""
    other = Authority(tmp_path / "other")
    pair = Pair(bookie_options(**authority.issue("bookie").keys), client_options(tls_trust=other.trust))
    assert isinstance(pair.client.lost, TlsRefused)
    assert pair.bookie.lost is not None
    assert not hasattr(pair.served, "tls")
    assert not hasattr(pair.made, "tls")


# -- roles


def subject(*values: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in values])


@pytest.mark.parametrize(
    ("unit", "role"),
    [
        ("0:Superuser,Client;1:Cluster1", "Superuser"),
        ("1:Cluster1;0: Site Ops ,Client", "Site Ops"),
        ("0:A;0:B", "B"),
        ("0:a:b", "a:b"),
        ("0:é", "é"),
        ("1:Superuser", None),
        ("00:Superuser", None),
        (" 0:Superuser", None),
        ("0:", None),
        ("0:,Superuser", None),
        ("x0:Superuser", None),
        ("Superuser", None),
        ("0", None),
    ],
)
def test_the_first_name_of_value_0(unit: str, role: str | None) -> None:
    """As Apache's bookies read it; what they can't read gives none."""
    assert role_of(subject((UNIT, unit))) == role


def test_the_first_unit_counts() -> None:
    """In the certificate's order; other fields say nothing, and a subject without a unit gives none."""
    assert role_of(subject((ORGANISATION, "0:A"), (UNIT, "0:B"), (UNIT, "0:C"))) == "B"
    assert role_of(subject((UNIT, "nothing"), (UNIT, "0:C"))) is None
    assert role_of(subject((ORGANISATION, "0:A"))) is None
    assert role_of(subject()) is None


def hello(announced: int, size: int) -> bytes:
    """The beginning of a client's first message of so many bytes, in records."""
    message = (b"\x01" + announced.to_bytes(3, "big") + b"\x03\x03").ljust(size, b"\0")
    records = [message[at : at + 16_000] for at in range(0, size, 16_000)]
    return b"".join(b"\x16\x03\x01" + len(record).to_bytes(2, "big") + record for record in records)


@pytest.mark.parametrize("piece", [100, 1 << 16])
def test_a_handshake_has_a_bound(authority: Authority, piece: int) -> None:
    """OpenSSL would keep 128 KiB of each connection; a good one with a long chain has room."""
    side, data = Side(), hello(131_000, 3 * HANDSHAKE_BYTES_MAX)
    served = SecureStream(side.tcp, side, load(bookie_options(**authority.issue("b").keys)).context, client=False)
    served.begin()
    fed = 0
    while not side.tcp.disconnecting:
        side.tcp.protocol.dataReceived(data[fed : fed + piece])  # type: ignore[attr-defined]
        fed += piece
    assert HANDSHAKE_BYTES_MAX < fed <= HANDSHAKE_BYTES_MAX + piece
    side.tcp.protocol.connectionLost(Failure(ConnectionLost()))  # type: ignore[attr-defined]
    assert isinstance(side.lost, TlsRefused)
    assert "its handshake has more than 16384 bytes" in str(side.lost)


def test_what_is_no_tls_is_said_so_however_long_it_is(authority: Authority) -> None:
    """Not that its handshake is too long."""
    side = Side()
    served = SecureStream(side.tcp, side, load(bookie_options(**authority.issue("b").keys)).context, client=False)
    served.begin()
    side.tcp.protocol.dataReceived(b"GET / HTTP/1.1\r\n".ljust(2 * HANDSHAKE_BYTES_MAX))  # type: ignore[attr-defined]
    side.tcp.protocol.connectionLost(Failure(ConnectionLost()))  # type: ignore[attr-defined]
    assert "http request" in str(side.lost)


def test_a_chain_of_certificates_has_room(authority: Authority) -> None:
    """Of a client: some 10 KiB; and what follows the handshake in the same piece is no part of it."""
    pair = authority.issue("client")
    with open(pair.certificate, "ab") as file:
        file.write(Path(pair.certificate).read_bytes() * 12)
    shown = {"tls_client_certificates": True, "tls_trust": authority.trust}
    both = Pair(bookie_options(**authority.issue("bookie").keys, **shown), client_options(**pair.keys, **shown))
    assert both.bookie.is_secured
    assert 9_000 < len(both.sent["client"]) < HANDSHAKE_BYTES_MAX
    both.made.write(b"much" * 10_000)
    both.carry()
    assert b"".join(both.bookie.pieces) == b"much" * 10_000


def test_a_close_waits_for_nobody(authority: Authority) -> None:
    """Its end of TLS is sent, and the connection ends with it: who never answers that holds nothing."""
    pair = Pair(bookie_options(**authority.issue("bookie").keys), client_options(tls_trust=authority.trust))
    pair.served.write(b"the last answer")
    pair.served.loseConnection()
    assert pair.bookie.tcp.disconnecting
    pair.carry()
    assert pair.client.pieces == [b"the last answer"]
    assert isinstance(pair.client.lost, ConnectionDone)


def test_a_name_of_a_stranger_can_not_write_lines(authority: Authority, tmp_path: Path) -> None:
    """What is not printable is an escape in the reason, which goes into the log, and its length is bounded."""
    stranger = Authority(tmp_path, "\n\x1b[31mforged" + "x" * 40)
    shown = {"tls_client_certificates": True}
    both = Pair(
        bookie_options(**authority.issue("bookie").keys, **shown, tls_trust=authority.trust),
        client_options(**stranger.issue("\x1b[2J\nforged", unit="x" * 5000).keys, **shown, tls_trust=authority.trust),
    )
    said = str(both.bookie.lost)
    assert said.isprintable()
    assert "\\x1b[2J" in said
    assert len(said) < 600
