"""The ledger table: Apache's rows byte for byte, and the states in memory in front of it."""

import io
import json
import random
import tarfile
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from quire.bookie.index.ledger_table import PAGE_ROWS, SHARED_MAX, LedgerRow, LedgerTable, decode, encode
from quire.bookie.storage import ledgers as ledgers_module
from quire.bookie.storage.ledgers import (
    EVICTED_AT_ONCE,
    KEYS_SHARED_MAX,
    PAGE_LEDGERS,
    STATES_MAX,
    Ledgers,
    RowMemory,
    StoredLedger,
    rows_of,
)
from quire.protocol.digest import Digest, DigestType
from quire.rows.files import StorageError
from quire.rows.rocks import RocksRows
from tests.rows.fakes import DictRows

VECTORS = Path(__file__).parents[2] / "vectors"
ROWS = st.builds(
    LedgerRow,
    st.binary(max_size=200),
    st.booleans(),
    st.none() | st.binary(max_size=300),
    st.booleans(),
    st.booleans(),
)


def ledger_data() -> type[Message]:
    """Their message by protobuf's own means, and our field behind theirs: the oracle."""
    file = descriptor_pb2.FileDescriptorProto(name="ledger_data.proto", syntax="proto2")
    message = file.message_type.add(name="LedgerData")
    kinds = descriptor_pb2.FieldDescriptorProto
    fields = [
        (1, "exists", kinds.TYPE_BOOL, True),
        (2, "fenced", kinds.TYPE_BOOL, True),
        (3, "masterKey", kinds.TYPE_BYTES, True),
        (4, "explicitLac", kinds.TYPE_BYTES, False),
        (5, "limbo", kinds.TYPE_BOOL, False),
        (1000, "dropped", kinds.TYPE_BOOL, False),
    ]
    for number, name, kind, required in fields:
        message.field.add(
            name=name, number=number, type=kind, label=kinds.LABEL_REQUIRED if required else kinds.LABEL_OPTIONAL
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("LedgerData"))


ORACLE = ledger_data()


@given(ROWS)
def test_rows_are_protobuf(row: LedgerRow) -> None:
    """Our bytes are those of protobuf, and its bytes are read back; unset optional fields are left out."""
    data = encode(row)
    message = ORACLE.FromString(data)
    assert message.exists  # type: ignore[attr-defined]  # a class made at run time
    found = LedgerRow(
        message.masterKey,  # type: ignore[attr-defined]
        message.fenced,  # type: ignore[attr-defined]
        message.explicitLac if message.HasField("explicitLac") else None,  # type: ignore[attr-defined]
        message.limbo,  # type: ignore[attr-defined]
        message.dropped,  # type: ignore[attr-defined]
    )
    assert found == row
    assert message.SerializeToString() == data
    assert decode(1, data) == row


@given(ROWS, st.data())
def test_cut_or_foreign_rows_are_errors(row: LedgerRow, data: st.DataObject) -> None:
    """Any cut either gives another row or an error that names the ledger; random bytes never raise anything else."""
    whole = encode(row)
    for junk in (whole[: data.draw(st.integers(0, len(whole)))], data.draw(st.binary(max_size=40))):
        found = None
        try:
            decode(77, junk)
        except StorageError as error:
            found = str(error)
        assert found is None or "ledger 77" in found
    assert decode(1, whole + b"\x30\x05\x3a\x02hi") == row, "fields from the future are passed over"
    with pytest.raises(StorageError, match="master key"):
        decode(1, b"\x08\x01\x10\x00")


def test_a_table_keeps_rows_in_order_of_id() -> None:
    """Stored, replaced, removed; Apache's flag rows with negative keys are neither listed nor touched."""
    rows = DictRows()
    flag = ((-0xEEFD).to_bytes(8, "big", signed=True), bytes(8))
    rows.write([flag])
    table = LedgerTable(rows)
    key = bytes(20)
    table.write({number: LedgerRow(key) for number in (300, 1, 2, 1 << 40)})
    table.write({2: None, 1: LedgerRow(key, True), 5: None})
    table.sync()
    assert list(table.ids()) == [1, 300, 1 << 40]
    assert table.get(1) == LedgerRow(key, True)
    assert table.get(2) is None
    assert rows.get(flag[0]) == flag[1]
    table.write({number: LedgerRow(bytes(1000)) for number in range(500)})
    assert len(list(table.ids())) == 501
    assert rows.unsynced > 5, "many rows are stored in several writes"


def test_apaches_table_is_read_and_written(tmp_path: Path) -> None:
    """The `ledgers` RocksDB of a live 4.17.3: each row decodes, encodes to the same bytes, and can be changed."""
    with tarfile.open(
        fileobj=io.BytesIO((VECTORS / "rocksdb_bookie0_stopped.tar.xz").read_bytes()), mode="r:xz"
    ) as tar:
        tar.extractall(tmp_path, filter="data")
    (path,) = tmp_path.glob("**/current/ledgers")
    rows = RocksRows(str(path))
    table = LedgerTable(rows)
    wanted = {
        row["ledger"]
        for row in map(json.loads, (VECTORS / "rocksdb_disks.jsonl").read_text().splitlines())
        if row["moment"] == "stopped"
    }
    assert set(table.ids()) == wanted
    key = Digest(DigestType.CRC32C, b"secret").master_key
    for ledger in sorted(wanted):
        row = table.get(ledger)
        assert row is not None
        assert row.key == key
        assert encode(row) == rows.get(ledger.to_bytes(8, "big"))
    table.write({0: LedgerRow(key, fenced=True)})
    table.sync()
    table.close()
    again = LedgerTable(RocksRows(str(path)))
    assert again.get(0) == LedgerRow(key, fenced=True)
    again.close()


def test_all_ids_are_listed_whatever_the_pages(tmp_path: Path) -> None:
    """Ascending, without Apache's flags and foreign keys, on both drivers."""
    for rows in (DictRows(), RocksRows(str(tmp_path / "table"))):
        table = LedgerTable(rows)
        assert list(table.ids()) == []
        for count in (1, PAGE_ROWS - 1, PAGE_ROWS, PAGE_ROWS + 1, 3 * PAGE_ROWS):
            table.write({ledger * 7: LedgerRow(b"k") for ledger in range(count)})
            rows.write([(b"\xff" * 8, b"flag"), (b"\0\0x", b"foreign")])
            assert list(table.ids()) == [ledger * 7 for ledger in range(count)]
        table.close()


def test_a_listing_never_ends_at_damage(tmp_path: Path) -> None:
    """A block that can't be read is an error, or what lies behind it would seem not to be here."""
    path = tmp_path / "table"
    table = LedgerTable(RocksRows(str(path), write_buffer_bytes=64 << 10))
    table.write({ledger: LedgerRow(ledger.to_bytes(20, "big")) for ledger in range(20_000)})
    table.close()
    LedgerTable(RocksRows(str(path))).close()  # the rows of its log become a table
    for file in path.glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    table = LedgerTable(RocksRows(str(path)))
    with pytest.raises(OSError, match=r"[Cc]orruption"):
        list(table.ids())
    table.close()


def test_rows_that_are_alike_are_kept_once() -> None:
    """However many there are, and each ledger has its own."""
    table = LedgerTable(DictRows())
    table.write({ledger: LedgerRow(b"key", explicit_lac=bytes([ledger % 2])) for ledger in range(10)})
    assert table.get(2) is table.get(4)
    assert table.get(3) == LedgerRow(b"key", explicit_lac=b"\1")
    table.write({ledger: LedgerRow(b"%d" % ledger) for ledger in range(SHARED_MAX + 10)})
    first = table.get(0)
    assert [table.get(ledger) for ledger in range(SHARED_MAX + 10)] == [
        LedgerRow(b"%d" % ledger) for ledger in range(SHARED_MAX + 10)
    ]
    assert table.get(0) is not first, "not for ever"


def test_states_are_loaded_kept_and_evicted() -> None:
    """A state comes from its row; a changed or watched one stays in memory, an idle one may go and come back."""
    table = {
        number: LedgerRow(b"k", fenced=True, explicit_lac=bytes(8) + (9).to_bytes(8, "big") + b"digest")
        for number in range(3)
    }
    ledgers = Ledgers(table.get)
    state = ledgers.get(1)
    assert state is not None
    assert (state.fenced, state.fence_durable, state.lac, state.surveyed, state.key_logged) == (
        True,
        True,
        9,
        False,
        True,
    )
    assert ledgers.get(1) is state
    assert ledgers.get(7) is None
    made = ledgers.create(7, b"n")
    assert made.surveyed
    assert ledgers.get(7) is made
    assert sorted(ledgers.ids(table)) == [0, 1, 2, 7]
    watched = ledgers.get(2)
    assert watched is not None
    watched.watch(lambda: None)
    ledgers.states.update({-number: StoredLedger(-number, b"") for number in range(1, STATES_MAX + 1)})
    steps = ledgers.evict(lambda ledger: ledger == -5)
    next(steps)
    assert STATES_MAX - EVICTED_AT_ONCE <= len(ledgers.states) <= STATES_MAX
    late = ledgers.get(0)
    assert late is not None
    ledgers.dirty[0] = late
    assert set(ledgers.take_dirty()) == {0, 7}, "what a checkpoint takes stays as well"
    assert list(steps)
    assert {7, 2, 0, -5, -STATES_MAX} <= set(ledgers.states)
    assert len(ledgers.states) == STATES_MAX // 2, "the oldest go"
    assert -1 not in ledgers.states
    assert ledgers.get(1) is not state


def test_what_the_table_does_not_have_yet_is_not_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a checkpoint took, a fence on its way, an index that still has rows of a deleted ledger with the same id."""
    monkeypatch.setattr(ledgers_module, "STATES_MAX", 0)
    ledgers = Ledgers({}.get)
    taken, fencing, again, idle = (ledgers.create(number, b"k") for number in range(4))
    for number in (1, 2, 3):
        del ledgers.dirty[number]
    ledgers.take_dirty()
    fencing.fenced = True
    again.index_stale = True
    assert list(ledgers.evict(lambda ledger: False)) == []
    assert set(ledgers.states) == {0, 1, 2}
    ledgers.settled()
    fencing.fence_durable = True
    again.index_stale = False
    assert list(ledgers.evict(lambda ledger: False)) == []
    assert not ledgers.states
    assert (taken.id, idle.id) == (0, 3)


def test_keys_that_are_alike_are_kept_once() -> None:
    """Most ledgers have one of few; of very many none is kept for long."""
    ledgers = Ledgers({}.get)
    keys = [b"%020d" % number for number in range(KEYS_SHARED_MAX + 1)]
    first = ledgers.create(0, keys[0]).key
    assert ledgers.create(1, b"%020d" % 0).key is first
    for number, key in enumerate(keys[1:], 2):
        assert ledgers.create(number, key).key == key
    assert ledgers.create(0, b"%020d" % 0).key is not first


def test_rows_of_evicted_ledgers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Read once, or never if they were made here; as they are now; a deleted one is gone, and all are read again
    after their directory failed.
    """
    monkeypatch.setattr(ledgers_module, "STATES_MAX", 0)
    table = {number: LedgerRow(b"%d" % (number % 3)) for number in range(1000)}
    loads: list[int] = []

    def load(ledger: int) -> LedgerRow | None:
        loads.append(ledger)
        return table.get(ledger)

    ledgers = Ledgers(load)

    def touched(*wanted: int) -> list[int]:
        loads.clear()
        states = [ledgers.get(ledger) for ledger in wanted]
        assert [None if state is None else state.row for state in states] == [table.get(ledger) for ledger in wanted]
        assert list(ledgers.evict(lambda ledger: False)) == []
        return list(loads)

    assert touched(1, 2, 700, 5000) == [1, 2, 700, 5000]
    assert touched(1, 2, 700, 5000) == [5000]
    changed = ledgers.get(2)
    assert changed is not None
    changed.fenced = changed.fence_durable = True
    ledgers.dirty[2] = changed
    ledgers.delete(700)
    for ledger, row in rows_of(ledgers.take_dirty()).items():
        if row is None:
            del table[ledger]
        else:
            table[ledger] = row
    ledgers.create(9000, b"new")
    ledgers.settled()
    assert touched(1, 2) == []
    assert touched(1, 2, 700) == [700]
    table |= rows_of(ledgers.take_dirty())  # type: ignore[arg-type]  # none was deleted
    ledgers.settled()
    assert touched(9000) == []
    assert touched(9000) == []
    ledgers.directory_failed(0, 1)
    assert touched(1, 2) == [1, 2]


def test_the_memory_of_rows_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In kinds of rows and in ledgers; a row that it returns is never wrong."""
    monkeypatch.setattr(ledgers_module, "PAGES_MAX", 4)
    memory = RowMemory()
    rng = random.Random(5)
    rows: dict[int, LedgerRow] = {}
    known_rows = 0
    for number in range(4000):
        ledger = rng.randrange(8 * PAGE_LEDGERS) << rng.choice((0, 0, 0, 40))
        known = memory.get(ledger)
        assert known is None or known == rows[ledger]
        known_rows += known is not None
        if number % 7 == 0:
            memory.forget(ledger)
            assert memory.get(ledger) is None
        else:
            rows[ledger] = LedgerRow(b"%d" % rng.randrange(1 + number // 10), fenced=rng.random() < 0.5)
            memory.put(ledger, rows[ledger])
            assert memory.get(ledger) == rows[ledger]
    assert known_rows
    for number in range(100):
        memory.put(number * PAGE_LEDGERS, LedgerRow(b"k"))
    assert sum(memory.get(number * PAGE_LEDGERS) is not None for number in range(100)) <= 4


def test_a_deleted_ledger_does_not_come_back_from_its_old_row() -> None:
    """Not while the deletion is dirty, not while a checkpoint stores it, and not once it is stored."""
    table: dict[int, LedgerRow | None] = {1: LedgerRow(b"k")}
    ledgers = Ledgers(table.get)
    assert ledgers.get(1) is not None
    ledgers.delete(1)
    assert ledgers.get(1) is None
    assert list(ledgers.ids([1])) == []
    taken = ledgers.take_dirty()
    assert rows_of(taken) == {1: None}
    assert ledgers.get(1) is None
    assert list(ledgers.ids([1])) == []
    table[1] = None
    ledgers.settled()
    assert ledgers.get(1) is None
    again = ledgers.create(1, b"other")
    assert rows_of(ledgers.take_dirty()) == {1: LedgerRow(b"other", dropped=True)}
    assert ledgers.get(1) is again


def test_watchers_may_go_while_they_are_called() -> None:
    """Each is called once for one event, also when one of them removes itself."""
    state = StoredLedger(1, b"k")
    heard: list[str] = []

    def once() -> None:
        heard.append("once")
        state.unwatch(once)

    state.watch(once)
    state.watch(lambda: heard.append("always"))
    state.wake()
    state.wake()
    assert heard == ["once", "always", "always"]
