"""Entry bodies, digests and keys against Apache's own (wire.md 5 and 6.1)."""

import zlib
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from quire.protocol import digest as d
from quire.protocol.digest import Digest, DigestType, EqualBodies
from quire.protocol.errors import DigestMatch
from tests.protocol.samples import ids, rows

# SPDX-License-Identifier: Apache-2.0

HEADER = "00000000000000010000000000000000ffffffffffffffff0000000000000005"
KINDS = list(DigestType)
HELLO = [
    (DigestType.CRC32, b"", "0000000030a5687268656c6c6f"),
    (DigestType.CRC32C, b"any", "e3a5f74d68656c6c6f"),
    (DigestType.DUMMY, b"any", "68656c6c6f"),
    (DigestType.MAC, b"", "00107b7f219e26462e04e16e6e7a7f41e046e09068656c6c6f"),
    (DigestType.MAC, b"testPasswd", "1fc10b7ef25ddc35686904654653862deb5d293368656c6c6f"),
]
LACS = [
    (DigestType.CRC32, b"", "00000000fbc05f16"),
    (DigestType.CRC32C, b"any", "b64e4ca2"),
    (DigestType.DUMMY, b"any", ""),
    (DigestType.MAC, b"", "d35939c05a6e8cf3f07e9cca549c0e42abbbc98f"),
    (DigestType.MAC, b"testPasswd", "9daa1de03bd975c5a28821fc758452b86a0ca729"),
]


def apache(row: dict[str, Any]) -> tuple[Digest, int, int, bytes, bytes]:
    made = Digest(
        DigestType.named({"HMAC": "MAC"}.get(row["digest"], row["digest"])), bytes.fromhex(row["password_hex"])
    )
    return made, row["ledger_id"], row["entry_id"], bytes.fromhex(row["body"]), bytes.fromhex(row["entry"])


def test_every_captured_entry_is_made_and_opened() -> None:
    """Bodies, keys and LAC packets of a live BookKeeper, bit for bit."""
    for row in rows("digests"):
        made, ledger, entry, payload, body = apache(row)
        assert made.master_key.hex() == row["master_key"]
        assert made.entry(ledger, entry, row["last_add_confirmed"], row["length"], payload) == body
        assert made.open(ledger, entry, body) == payload
        assert made.open(ledger, -1, body) == payload
        assert d.entry_id(body) == entry
        assert d.last_add_confirmed(body) == row["last_add_confirmed"]
        assert d.explicit_lac(made.lac_body(ledger, row["last_add_confirmed"])) == row["last_add_confirmed"]
        assert made.lac_body(ledger, row["last_add_confirmed"]).hex() == row["lac_packet"]
        assert made.open_lac(ledger, bytes.fromhex(row["lac_packet"])) == row["last_add_confirmed"]


def test_known_check_values() -> None:
    """CRC-32 and CRC-32C give the published check values."""
    assert zlib.crc32(b"123456789") == 0xCBF43926
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(("kind", "password", "rest"), HELLO)
def test_known_entries(kind: DigestType, password: bytes, rest: str) -> None:
    """An entry has known bytes for each digest."""
    assert Digest(kind, password).entry(1, 0, -1, 5, b"hello").hex() == HEADER + rest


@pytest.mark.parametrize(("kind", "password", "rest"), LACS)
def test_known_explicit_lacs(kind: DigestType, password: bytes, rest: str) -> None:
    """An explicit LAC has known bytes for each digest."""
    assert Digest(kind, password).lac_body(1, 0).hex() == "0000000000000001" + "0" * 16 + rest


def test_known_keys() -> None:
    """Master key and MAC key are derived from the password (wire.md 5.2)."""
    assert d.master_key(b"").hex() == "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"
    assert d.mac_key(b"").hex() == "347ead6348e936507920c15d2ae8266ac6ce9b49"
    assert d.master_key(b"testPasswd").hex() == "2e2a69d870796fe05c0e77c52a29ce5e4222b758"
    assert d.mac_key(b"testPasswd").hex() == "1bc765c5e5e8cb34bb1bc45884394f3a2b8f8311"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not DigestType.DUMMY])
def test_every_flipped_bit_is_seen(kind: DigestType) -> None:
    """Whether in the ids, the LAC, the length, the digest or the payload."""
    made = Digest(kind, b"secret")
    body = made.entry(7, 3, 2, 40, b"payload")
    for bit in range(len(body) * 8):
        broken = bytearray(body)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DigestMatch):
            made.open(7, 3, bytes(broken))
        assert made.open_run(7, 3, [bytes(broken)]) == []
        assert made.intact(7, 3, [bytes(broken)]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_ids_must_be_those_asked_for(kind: DigestType) -> None:
    """A whole, honest entry of another place is refused too; DUMMY has nothing but the ids."""
    made = Digest(kind, b"secret")
    body = made.entry(7, 3, 2, 40, b"payload")
    for ledger, entry in ((8, 3), (7, 4), (-7, 3)):
        with pytest.raises(DigestMatch):
            made.open(ledger, entry, body)
        assert made.open_run(ledger, entry, [body]) == []
        assert made.intact(ledger, entry, [body]) == 0
    with pytest.raises(DigestMatch):
        made.open(8, -1, body)


@pytest.mark.parametrize("kind", KINDS)
def test_short_bodies_are_refused(kind: DigestType) -> None:
    """A body cut at any byte raises `DigestMatch`, and a run ends before it."""
    made = Digest(kind, b"secret")
    body = made.entry(7, 3, 2, 40, b"")
    assert made.open(7, 3, body) == b""
    for length in range(len(body)):
        with pytest.raises(DigestMatch):
            made.open(7, 3, body[:length])
        assert made.open_run(7, 3, [body[:length]]) == []
        assert made.intact(7, 3, [body[:length]]) == 0


@pytest.mark.parametrize("kind", [DigestType.MAC])
def test_another_password_is_seen(kind: DigestType) -> None:
    """A MAC under another password raises `DigestMatch`."""
    body = Digest(kind, b"one").entry(7, 3, 2, 40, b"payload")
    with pytest.raises(DigestMatch):
        Digest(kind, b"two").open(7, 3, body)


@given(
    st.sampled_from(KINDS),
    st.binary(max_size=8),
    ids,
    ids,
    st.integers(-1, 50),
    st.integers(0, 1 << 40),
    st.lists(st.binary(max_size=40), max_size=12),
)
def test_many_at_once_are_the_same_as_one_by_one(
    kind: DigestType, password: bytes, ledger: int, first: int, lac: int, length: int, payloads: list[bytes]
) -> None:
    """`parts`, `open_run` and `intact` against their slow twins `entry` and `open`."""
    first = min(first, (1 << 63) - 20)
    made = Digest(kind, password)
    prefix = [b"<%d>" % at for at in range(len(payloads))]
    parts, after = made.parts(prefix, ledger, first, lac, length, payloads)
    slow, bodies = [], []
    for at, payload in enumerate(payloads):
        length += len(payload)
        bodies.append(made.entry(ledger, first + at, lac, length, payload))
        slow.append(prefix[at] + bodies[-1])
    assert b"".join(parts) == b"".join(slow)
    assert len(parts) == 4 * len(payloads)
    assert after == length
    assert made.open_run(ledger, first, bodies) == payloads
    assert made.intact(ledger, first, bodies) == len(bodies)
    assert [made.open(ledger, first + at, body) for at, body in enumerate(bodies)] == payloads


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_ends_before_its_first_bad_entry(kind: DigestType) -> None:
    """The payloads before it are returned."""
    made = Digest(kind, b"")
    bodies = [made.entry(1, at, -1, at, b"x") for at in range(5)]
    assert made.open_run(1, 0, [*bodies[:3], bodies[4]]) == [b"x"] * 3
    assert made.intact(1, 0, [*bodies[:3], bodies[4]]) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_explicit_lac_is_checked(kind: DigestType) -> None:
    """Another ledger, another length and changed bytes raise `DigestMatch`."""
    made = Digest(kind, b"secret")
    body = made.lac_body(7, -1)
    assert made.open_lac(7, body) == -1
    with pytest.raises(DigestMatch):
        made.open_lac(8, body)
    with pytest.raises(DigestMatch):
        made.open_lac(7, body + b"\0")
    with pytest.raises(DigestMatch):
        made.open_lac(7, body[:-1])
    if kind is not DigestType.DUMMY:
        with pytest.raises(DigestMatch):
            made.open_lac(7, body[:15] + b"\x05" + body[16:])


def test_digests_are_named_as_users_type_them() -> None:
    """Names are read in any case, `hmac` is MAC, and an unknown one lists the others."""
    assert DigestType.named("crc32c") is DigestType.CRC32C
    assert DigestType.named("hmac") is DigestType.MAC
    assert DigestType.named(DigestType.DUMMY) is DigestType.DUMMY
    with pytest.raises(ValueError, match="CRC32, MAC, CRC32C, DUMMY"):
        DigestType.named("md5")


def packed(bodies: list[bytes]) -> EqualBodies:
    """As they lie in a frame, with bytes before and after."""
    framed = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    return EqualBodies(b"<" + framed + b">", 1, 1 + len(framed), len(bodies[0]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [0, 1, 100])
def test_bodies_of_one_size_that_lie_in_a_frame_are_like_a_list_of_them(kind: DigestType, size: int) -> None:
    """Whether they are counted, cut, compared or opened."""
    made = Digest(kind, b"")
    payloads = [bytes([at]) * size for at in range(9)]
    bodies = [made.entry(7, 3 + at, 2, size * at, payload) for at, payload in enumerate(payloads)]
    lying = packed(bodies)
    assert (len(lying), lying[0], lying[-1], lying[2:5]) == (9, bodies[0], bodies[-1], bodies[2:5])
    assert list(lying) == bodies
    assert lying == bodies
    assert lying != bodies[:-1]
    with pytest.raises(IndexError):
        lying[9]
    assert made.open_run(7, 3, lying) == payloads
    assert made.intact(7, 3, lying) == 9
    assert made.open_run(8, 3, lying) == []
    assert made.open_run(7, 4, lying) == []


@pytest.mark.parametrize("at", range(40))
def test_a_frame_of_bodies_ends_before_the_first_with_a_flipped_bit(at: int) -> None:
    """Wherever in the entry it is."""
    made = Digest(DigestType.CRC32C, b"")
    bodies = [made.entry(7, entry, -1, entry, b"four") for entry in range(5)]
    broken = bytearray(bodies[3])
    broken[at] ^= 1
    assert made.open_run(7, 0, packed([*bodies[:3], bytes(broken), bodies[4]])) == [b"four"] * 3


def test_a_frame_of_bodies_too_short_for_an_entry_has_none() -> None:
    """Also where they are shorter than header and digest."""
    assert Digest(DigestType.CRC32C, b"").open_run(7, 0, packed([bytes(35)] * 3)) == []
