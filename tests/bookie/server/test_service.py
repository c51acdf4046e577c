"""What a bookie answers to each operation, in both generations (wire.md 7.3), on a storage in memory."""

import pytest

from quire.protocol import availability, v3
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import Status
from quire.protocol.messages import (
    BOOKIE_ID,
    LAST_ENTRY,
    AddAcks,
    Auth,
    AuthReply,
    BookieInfo,
    Force,
    InfoReply,
    LacReply,
    ListEntries,
    ListReply,
    ReadLac,
    ReadReply,
    StartTls,
    StatusReply,
    WriteLac,
)
from quire.rows.files import StorageError
from tests.bookie.fakes.wires import (
    BOOKIE,
    DIGEST,
    INCARNATION,
    KEY,
    LEDGER,
    WRONG,
    Scene,
    adds,
    adds3,
    batch_read,
    read,
    read3,
)

# SPDX-License-Identifier: Apache-2.0

S = Status
OTHER = Digest(DigestType.CRC32C, b"wrong")


def write_lac(
    txn: int, lac: int, ledger: int = LEDGER, digest: Digest = DIGEST, body: bytes | None = None, priority: int = 0
) -> bytes:
    return v3.pack_request(
        WriteLac(ledger, lac, digest.master_key, digest.lac_body(ledger, lac) if body is None else body, txn, priority)
    )


def body_of(payload: bytes, entry: int, length: int | None = None) -> bytes:
    return DIGEST.entry(LEDGER, entry, entry - 1, len(payload) if length is None else length, payload)


# --- adds


def test_an_add_is_answered_when_its_token_comes_back() -> None:
    """And not before: the storage decides what is durable."""
    scene = Scene(at_once=False)
    client = scene.connect().send(adds(b"a", b"b"))
    assert client.take() == b""
    scene.storage.sync()
    assert client.replies() == [AddAcks(LEDGER, 0, 2, S.EOK)]


def test_one_write_for_all_answers_of_a_group() -> None:
    """Runs of several ledgers and of one connection leave as one bytes object."""
    scene = Scene(at_once=False)
    one, two = scene.connect(), scene.connect()
    one.send(adds(b"a") + adds(b"b", ledger=8) + adds(b"c", first=1))
    two.send(adds3(5, b"x", ledger=9))
    writes: list[bytes] = []
    one.wire.write = writes.append  # type: ignore[method-assign]
    scene.storage.sync()
    assert len(writes) == 1
    assert len(writes[0]) == 3 * 28
    assert two.replies() == [AddAcks(9, 0, 1, S.EOK, 5)]


@pytest.mark.parametrize("first", [0, 41])
def test_the_first_add_makes_the_ledger_at_any_entry(first: int) -> None:
    """A ledger comes to be by its first add, whichever entry id that has."""
    scene = Scene()
    assert scene.connect().ask(adds(b"a", first=first)) == AddAcks(LEDGER, first, 1, S.EOK)
    assert scene.connect().ask(read(first)) == ReadReply(S.EOK, LEDGER, first, body_of(b"a", first))


def test_duplicates_and_any_order_are_fine() -> None:
    """Entries are acknowledged in any order, and again when they are sent twice."""
    scene = Scene()
    client = scene.connect()
    for first in (5, 3, 5):
        assert client.ask(adds(b"a", first=first)) == AddAcks(LEDGER, first, 1, S.EOK)


def test_the_key_is_checked_before_the_fence() -> None:
    """A stranger learns nothing about the fence."""
    scene = Scene()
    client = scene.connect()
    client.ask(adds(b"a"))
    client.ask(read(LAST_ENTRY, fence=True, master_key=KEY))
    assert client.ask(adds(b"b", first=1)).status is S.EFENCED
    assert client.ask(adds(b"b", first=1, digest=OTHER)).status is S.EUA
    assert client.ask(adds(b"b", first=1, recovery=True)).status is S.EOK


def test_a_refused_run_is_refused_entry_by_entry() -> None:
    """Each entry of a run gets its answer, in both generations."""
    scene = Scene()
    scene.service.read_only = True
    assert scene.connect().send(adds(b"a", b"b", b"c")).replies() == [AddAcks(LEDGER, 0, 3, S.EREADONLY)]
    client = scene.connect().send(adds3(10, b"a", b"b"))
    found = client.replies()
    assert sum(ack.count for ack in found if isinstance(ack, AddAcks)) == 2
    assert {ack.status for ack in found if isinstance(ack, AddAcks)} == {S.EREADONLY}


def test_read_only_refuses_all_but_ledger_recovery() -> None:
    """High priority passes while a disk has room; what re-replication copies (recovery without priority) does not."""
    scene = Scene()
    client = scene.connect()
    scene.service.read_only = True
    assert client.ask(adds(b"a")).status is S.EREADONLY
    assert client.ask(adds(b"a", recovery=True)).status is S.EREADONLY
    assert client.ask(adds(b"a", recovery=True, priority=100)).status is S.EOK
    scene.service.high_priority_writes = False
    assert client.ask(adds(b"a", recovery=True, priority=100)).status is S.EREADONLY
    assert client.ask(read(0)).status is S.EOK


def test_version_3_of_v2_is_refused_before_anything_else() -> None:
    """An unknown V2 version gets EBADVERSION even on a read-only bookie."""
    scene = Scene()
    scene.service.read_only = True
    frame = bytearray(adds(b"a"))
    frame[4] = 3
    assert scene.connect().send(bytes(frame)).take() == bytes.fromhex(
        "00000018030100000000006700000000000000070000000000000000"
    )


def test_version_2_in_a_v3_header_is_refused() -> None:
    """A typed answer with EBADVERSION."""
    scene = Scene()
    for frame in (
        adds3(1, b"a"),
        read3(1, 0),
        write_lac(1, 0),
        v3.pack_request(Force(LEDGER, 1)),
        v3.pack_request(ReadLac(LEDGER, 1)),
    ):
        changed = frame.replace(b"\x0a\x06\x08\x03", b"\x0a\x06\x08\x02", 1)
        assert changed != frame
        found = scene.connect().ask(changed)
        assert getattr(found, "status", None) is S.EBADVERSION, found


@pytest.mark.parametrize("ledger", [(1 << 63) - 1, -1])
def test_impossible_ledger_ids_are_refused(ledger: int) -> None:
    """2^63 - 1 means something else to Apache; nothing may ever be stored under it."""
    scene = Scene()
    assert scene.connect().ask(adds(b"a", ledger=ledger)).status is S.EBADREQ
    assert scene.connect().ask(read(0, ledger=ledger, fence=True, master_key=KEY)).status is S.EBADREQ
    assert scene.storage.kept == {}


def test_a_body_without_lac_is_a_bad_request() -> None:
    """16 to 23 bytes have ids, so there is an answer; the connection goes on."""
    body = body_of(b"", 0)[:20]
    frame = (24 + len(body)).to_bytes(4, "big") + bytes.fromhex("02010000") + KEY + body
    client = Scene().connect()
    assert client.ask(frame) == AddAcks(LEDGER, 0, 1, S.EBADREQ)
    assert client.ask(adds(b"a")).status is S.EOK


# --- reads


def test_read_of_last_entry_echoes_minus_one() -> None:
    """A V2 read of the last entry returns its body under entry id -1."""
    scene = Scene()
    scene.connect().send(adds(b"a", b"b", first=4))
    found = scene.connect().ask(read(LAST_ENTRY))
    assert found == ReadReply(S.EOK, LEDGER, -1, scene.storage.kept[LEDGER].entries[5])


def test_v3_plain_read_has_the_lac_and_a_fencing_one_has_none() -> None:
    """A V3 read carries the last add confirmed, a fencing read does not."""
    scene = Scene()
    client = scene.connect()
    client.send(adds3(1, b"a", b"b", first=4)).replies()
    plain = client.ask(read3(3, 5))
    assert isinstance(plain, ReadReply)
    assert (plain.lac, plain.entry, plain.txn) == (3, 5, 3)
    fencing = client.ask(read3(4, 5, fence=True, master_key=KEY))
    assert isinstance(fencing, ReadReply)
    assert (fencing.status, fencing.lac, fencing.body) == (S.EOK, None, plain.body)


@pytest.mark.parametrize(
    ("ledger", "entry", "status"),
    [(99, 0, S.ENOLEDGER), (99, -1, S.ENOLEDGER), (LEDGER, 1, S.ENOENTRY), (LEDGER, 99, S.ENOENTRY)],
)
def test_what_is_missing(ledger: int, entry: int, status: Status) -> None:
    """An unknown ledger and a hole have different answers; no key is needed."""
    scene = Scene()
    scene.connect().send(adds(b"a")).send(adds(b"c", first=2))
    assert scene.connect().ask(read(entry, ledger)) == ReadReply(status, ledger, entry)
    found = scene.connect().ask(read3(1, entry, ledger))
    assert isinstance(found, ReadReply)
    assert (found.status, found.ledger, found.entry, found.lac) == (status, ledger, entry, None)


def test_a_ledger_whose_row_cant_be_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds, reads, fences, LACs: each gets EIO, never "no such ledger", and the connection goes on."""
    scene = Scene()
    client = scene.connect().send(adds(b"a"))
    client.replies()

    def damaged(*_: object) -> None:
        raise StorageError("/index/current/ledgers: block checksum mismatch")

    for name in ("add", "read", "read_run", "fence", "lac"):
        monkeypatch.setattr(scene.storage, name, damaged)
    assert client.send(adds(b"b", b"c", first=1)).replies() == [AddAcks(LEDGER, 1, 2, S.EIO)]
    assert client.ask(read(0)).status is S.EIO
    assert client.ask(batch_read(0)).status is S.EIO
    assert client.ask(read(0, fence=True, master_key=KEY)).status is S.EIO
    assert scene.connect().ask(read3(1, 0)).status is S.EIO
    monkeypatch.undo()
    found = client.ask(read(0))
    assert found.status is S.EOK


def test_limbo_is_unknown_on_v3_and_an_error_on_v2() -> None:
    """A V2 client drops its connection at 107, so it must never see it."""
    scene = Scene()
    scene.connect().send(adds(b"a"))
    scene.storage.kept[LEDGER].limbo = True
    assert scene.connect().ask(read(3)).status is S.EIO
    assert scene.connect().ask(batch_read(3)).status is S.EIO
    assert scene.connect().ask(read3(1, 3)).status is S.EUNKNOWNLEDGERSTATE
    assert scene.connect().ask(read(0)).status is S.EOK


# --- fences


def test_a_fence_without_key_or_with_a_wrong_one() -> None:
    """Both get EUA in V2 and V3, and the ledger is not fenced."""
    scene = Scene()
    scene.connect().send(adds(b"a"))
    assert scene.connect().ask(read3(1, fence=True)).status is S.EUA
    assert scene.connect().ask(read3(1, fence=True, master_key=WRONG)).status is S.EUA
    assert not scene.storage.kept[LEDGER].fenced
    frame = bytearray(read(0, version=1))
    frame[7] = 1  # the fence flag with version 1, which has no key
    assert scene.connect().ask(bytes(frame)).status is S.EUA


@pytest.mark.parametrize("generation", [2, 3])
def test_an_unknown_ledger_becomes_fenced(generation: int) -> None:
    """ENOENTRY, not ENOLEDGER, and adds are refused from then on."""
    scene = Scene()
    client = scene.connect()
    frame = read(-1, fence=True, master_key=KEY) if generation == 2 else read3(1, fence=True, master_key=KEY)
    for _ in range(2):
        assert client.ask(frame).status is S.ENOENTRY
    assert scene.connect().ask(adds(b"a")).status is S.EFENCED
    assert scene.connect().ask(adds(b"a", recovery=True)).status is S.EOK


@pytest.mark.parametrize("entry", [0, 5])
def test_no_answer_to_a_fence_before_it_is_on_disk(entry: int) -> None:
    """Negatives included: a "no" that a restart could undo would let recovery close too early."""
    scene = Scene(at_once=False)
    client = scene.connect()
    client.send(adds(b"a"))
    scene.storage.sync()
    client.take()
    client.send(read(entry, fence=True, master_key=KEY))
    assert client.take() == b""
    scene.storage.sync()
    assert client.replies()[0].status is (S.EOK if entry == 0 else S.ENOENTRY)


def test_a_fencing_read_sees_every_add_accepted_before() -> None:
    """The read happens after the fence; the add that came between is refused."""
    scene = Scene(at_once=False)
    writer, opener = scene.connect(), scene.connect()
    writer.send(adds(b"a", b"b"))
    opener.send(read(LAST_ENTRY, fence=True, master_key=KEY))
    writer.send(adds(b"c", first=2))
    assert writer.replies() == [AddAcks(LEDGER, 2, 1, S.EFENCED)]
    scene.storage.sync()
    assert writer.replies() == [AddAcks(LEDGER, 0, 2, S.EOK)]
    found = opener.replies()[0]
    assert isinstance(found, ReadReply)
    assert found.body == scene.storage.kept[LEDGER].entries[1]


def test_fences_work_on_a_read_only_bookie() -> None:
    """A read-only bookie accepts a fencing read."""
    scene = Scene()
    scene.connect().send(adds(b"a"))
    scene.service.read_only = True
    assert scene.connect().ask(read(0, fence=True, master_key=KEY)).status is S.EOK


# --- last add confirmed


def test_explicit_lac_is_kept_as_it_was_written() -> None:
    """Bytes come back unchanged; an older one replaces them but lowers nothing; fenced ledgers take it too."""
    scene = Scene(at_once=False)
    client = scene.connect()
    client.send(write_lac(1, 5))
    assert client.take() == b""
    scene.storage.sync()
    assert client.replies() == [StatusReply(v3.WRITE_LAC, S.EOK, 1, LEDGER)]
    scene.storage.at_once = True
    assert client.ask(write_lac(2, 3)).status is S.EOK
    assert client.ask(v3.pack_request(ReadLac(LEDGER, 3))) == LacReply(
        S.EOK, LEDGER, 3, DIGEST.lac_body(LEDGER, 3), None
    )
    assert scene.storage.lac(LEDGER) == 5
    client.ask(read3(4, fence=True, master_key=KEY))
    assert client.ask(write_lac(5, 6)).status is S.EOK


def test_explicit_lac_is_refused() -> None:
    """Wrong key; read-only, whatever the priority; a body without its 16 bytes."""
    scene = Scene()
    client = scene.connect()
    client.send(adds3(1, b"a")).take()
    assert client.ask(write_lac(2, 0, digest=OTHER)).status is S.EUA
    assert client.ask(write_lac(3, 0, body=bytes(15))).status is S.EBADREQ
    scene.service.read_only = True
    assert client.ask(write_lac(4, 0, priority=100)).status is S.EREADONLY


def test_explicit_lac_goes_to_the_ledger_of_its_body() -> None:
    """The ledger id in the body decides, not the one in the request."""
    scene = Scene()
    body = DIGEST.lac_body(8, 1)
    assert scene.connect().ask(write_lac(1, 1, body=body)).status is S.EOK
    assert scene.storage.explicit_lac(8) == body
    assert scene.storage.ledger(LEDGER) is None


def test_read_lac() -> None:
    """Unknown: ENOENTRY, never ENOLEDGER; entry alone; both; limbo never says no."""
    scene = Scene()
    client = scene.connect()
    ask = v3.pack_request(ReadLac(LEDGER, 3))
    assert client.ask(ask) == LacReply(S.ENOENTRY, LEDGER, 3)
    client.send(adds3(1, b"a")).take()
    assert client.ask(ask) == LacReply(S.EOK, LEDGER, 3, None, body_of(b"a", 0))
    client.ask(write_lac(2, 0))
    assert client.ask(ask) == LacReply(S.EOK, LEDGER, 3, DIGEST.lac_body(LEDGER, 0), body_of(b"a", 0))
    ledger = scene.storage.kept[LEDGER]
    ledger.entries.clear()
    ledger.limbo = True
    assert client.ask(ask) == LacReply(S.EUNKNOWNLEDGERSTATE, LEDGER, 3, DIGEST.lac_body(LEDGER, 0), None)


# --- the rest


def test_force() -> None:
    """Also of an unknown ledger, also read-only; answered when the sync is done."""
    scene = Scene(at_once=False)
    scene.service.read_only = True
    client = scene.connect().send(v3.pack_request(Force(99, 4)))
    assert client.take() == b""
    scene.storage.sync()
    assert client.replies() == [StatusReply(v3.FORCE_LEDGER, S.EOK, 4, 99)]


@pytest.mark.parametrize(
    ("requested", "total", "free"), [(0, None, None), (1, 1000, None), (2, None, 500), (3, 1000, 500)]
)
def test_bookie_info_gives_what_was_asked_for(requested: int, total: int | None, free: int | None) -> None:
    """The answer has total and free bytes only if the request's flags name them."""
    assert Scene().connect().ask(v3.pack_request(BookieInfo(requested, 1))) == InfoReply(S.EOK, 1, total, free)


def test_who_asks_hears_which_bookie_this_is() -> None:
    """
    And in which incarnation.  Also when it is read-only, and before V2 on the same connection; without a request no
    answer says it.
    """
    scene = Scene()
    scene.service.read_only = True
    client = scene.connect()
    assert client.ask(v3.pack_request(BookieInfo(BOOKIE_ID, 0))) == InfoReply(S.EOK, 0, None, None, BOOKIE, INCARNATION)
    assert client.ask(v3.pack_request(BookieInfo(BOOKIE_ID | 1, 1))) == InfoReply(
        S.EOK, 1, 1000, None, BOOKIE, INCARNATION
    )
    assert (
        client.send(v3.pack_request(BookieInfo(BOOKIE_ID, 0)))
        .take()
        .endswith(b"\xca\x06\x20\x08\x00\xc2\x3e\x08bookie-1\xca\x3e\x1091c20a3fd04e5b77")
    )
    assert client.send(read(0)).take()[4] == 2


def test_list_of_entries() -> None:
    """The answer encodes the runs of entries that are held; an unknown ledger gets ENOLEDGER."""
    scene = Scene()
    client = scene.connect()
    client.send(adds3(1, b"a", b"b", b"c")).send(adds3(4, b"x", first=9)).take()
    found = client.ask(v3.pack_request(ListEntries(LEDGER, 5)))
    assert isinstance(found, ListReply)
    assert found.availability is not None
    assert availability.decode(found.availability) == [(0, 3), (9, 1)]
    assert client.ask(v3.pack_request(ListEntries(99, 6))) == ListReply(S.ENOLEDGER, 99, 6)


def test_auth_is_answered_in_both_generations() -> None:
    """Byte for byte as Apache's; again and again."""
    scene = Scene()
    v2_frame = bytes.fromhex("0000001a020300000a124175746844697361626c6564506c7567696e1200")
    client = scene.connect()
    for _ in range(2):
        assert client.send(v2_frame).take() == v2_frame
    v3_client = scene.connect()
    asked = bytes.fromhex("000000130a0608031005180eb206080a047361736c1200")
    answered = bytes.fromhex("000000230a0608031005180e1000b206160a124175746844697361626c6564506c7567696e1200")
    for _ in range(2):
        assert v3_client.send(asked).take() == answered
    assert v3_client.ask(v3.pack_request(Auth("x", b"", 1, version=3))) == AuthReply(
        "AuthDisabledPlugin", b"", S.EOK, 1
    )


def test_start_tls_is_refused_and_the_connection_goes_on() -> None:
    """StartTLS gets EBADREQ, and later requests of the connection are served."""
    client = Scene().connect()
    assert client.send(bytes.fromhex("0000000b0a0608031009180dd20600")).take() == bytes.fromhex(
        "0000000b0a0608031009180d109403"
    )
    assert client.ask(v3.pack_request(StartTls(1))).status is S.EBADREQ
    assert client.ask(adds3(1, b"a")).status is S.EOK


@pytest.mark.parametrize("operation", [3, 4, 12])
def test_operations_that_are_not_served(operation: int) -> None:
    """EBADREQ with the header copied, priority included."""
    asked = bytes.fromhex(f"0000000a0a08080310{operation:02x}180f2064")
    answered = bytes.fromhex(f"0000000d0a08080310{operation:02x}180f2064109403")
    assert Scene().connect().send(asked).take() == answered
