"""Entries of a damaged entry log."""

import pathlib
import struct
from random import Random

import pytest

from quire.bookie.logs.format import HEADER, HEADER_BYTES, MAGIC, SIZE
from quire.bookie.offline.salvage import Found, bounds, entries
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import DigestMatch
from quire.rows.files import Files
from tests.bookie.fakes.apache_files import PASSWORD, unpack

# SPDX-License-Identifier: Apache-2.0

FILES = Files()
SUM = Digest(DigestType.CRC32C, b"")
PAYLOADS = [b"payload %d" % number * (number % 30) for number in range(300)]
BODIES = [SUM.entry(7, number, number - 1, 10 * number, payload) for number, payload in enumerate(PAYLOADS)]
OFFSETS = [HEADER_BYTES + sum(SIZE.size + len(body) for body in BODIES[:number]) for number in range(301)]


def opened(ledger: int, entry: int, body: bytes) -> bytes | None:
    try:
        return SUM.open(ledger, entry, body)
    except DigestMatch:
        return None


def whole(number: int) -> Found:
    return Found(OFFSETS[number], len(BODIES[number]), BODIES[number], PAYLOADS[number])


@pytest.fixture
def log(tmp_path: pathlib.Path) -> pathlib.Path:
    """One ledger's entries."""
    data = HEADER.pack(MAGIC, 1, 0, 0).ljust(HEADER_BYTES, b"\0")
    data += b"".join(SIZE.pack(len(body)) + body for body in BODIES)
    (tmp_path / "0.log").write_bytes(data)
    return tmp_path / "0.log"


def read(log: pathlib.Path, pieces: list[tuple[int, int]]) -> list[Found]:
    return [each for begin, end in pieces for each in entries(FILES, str(log), begin, end, opened)]


def damaged(log: pathlib.Path, at: int, data: bytes) -> None:
    there = bytearray(log.read_bytes())
    there[at : at + len(data)] = data
    log.write_bytes(there)


@pytest.mark.parametrize("split", [1, 300, 5000, 1 << 30])
def test_any_division_gives_each_record_once(log: pathlib.Path, split: int) -> None:
    """In order, with its place."""
    pieces = bounds(FILES, str(log), split)
    assert (pieces[0][0], pieces[-1][1]) == (HEADER_BYTES, log.stat().st_size)
    assert read(log, pieces) == [whole(number) for number in range(300)]


@pytest.mark.parametrize(
    "bytes_there", [struct.pack(">i", -1), struct.pack(">i", 1 << 30), struct.pack(">i", 3), b"\xff" * 40]
)
def test_a_size_that_can_be_none(log: pathlib.Path, bytes_there: bytes) -> None:
    """The hole goes to where the next entry begins that holds its sum."""
    damaged(log, OFFSETS[100], bytes_there)
    found = read(log, bounds(FILES, str(log), 1 << 30))
    behind = next(at for at in OFFSETS if at >= OFFSETS[100] + max(len(bytes_there), 5))
    assert Found(OFFSETS[100], behind - OFFSETS[100], None, None) in found
    bodies = {each.body for each in found}
    assert set(BODIES[:100]) <= bodies
    assert {body for at, body in zip(OFFSETS, BODIES, strict=False) if at >= behind} <= bodies


def test_a_page_of_zeros(log: pathlib.Path) -> None:
    """As a disk leaves that lost it."""
    damaged(log, OFFSETS[50] + 2, bytes(4096))
    bodies = {each.body for each in read(log, bounds(FILES, str(log), 1 << 30))}
    assert {body for at, body in zip(OFFSETS, BODIES, strict=False) if at > OFFSETS[50] + 4100} <= bodies


def test_a_torn_end(log: pathlib.Path) -> None:
    """A hole to the end of the file."""
    data = log.read_bytes()
    log.write_bytes(data[: OFFSETS[300] - 3])
    found = read(log, bounds(FILES, str(log), 1 << 30))
    assert [each.body for each in found[:-1]] == BODIES[:-1]
    assert found[-1] == Found(OFFSETS[299], OFFSETS[300] - 3 - OFFSETS[299], None, None)


def test_bytes_that_look_like_records_everywhere(log: pathlib.Path) -> None:
    """As a writer may store them: what is tried of them is bounded, and what is behind them is found."""
    tried = 0

    def counted(ledger: int, entry: int, body: bytes) -> bytes | None:
        nonlocal tried
        tried += len(body)
        return opened(ledger, entry, body)

    good, fakes = log.read_bytes(), (SIZE.pack(1 << 20) + bytes(4)) * (1 << 18)
    log.write_bytes(good[: OFFSETS[100]] + b"\xff" * 4 + fakes + good[OFFSETS[100] :] * 200)
    found = list(entries(FILES, str(log), HEADER_BYTES, log.stat().st_size, counted))
    assert [each.body for each in found[:100]] == BODIES[:100]
    assert {each.body for each in found[101:]} == {*BODIES[100:]}
    assert len(found) == 101 + 200 * 200
    assert tried < 1 << 28


@pytest.mark.parametrize("behind", [b"", bytes(1 << 20)], ids=["nothing", "zeros"])
@pytest.mark.parametrize("sizes", [[300] * 3, [20_000] * 3, [100_000], [300, 30_000], [20_000, 2_000_000]], ids=str)
def test_numbers_that_look_like_records(log: pathlib.Path, sizes: list[int], behind: bytes) -> None:
    """A damaged entry is an array of them, as many are: each entry behind it is found, the last one as well."""
    for seed in range(1 if behind else 3):
        rng = Random(seed)
        numbers = struct.pack(">4096q", *(rng.randrange(300, 1 << 18 if at < 3000 else 3000) for at in range(4096)))
        payloads = [numbers, *map(rng.randbytes, sizes)]
        bodies = [SUM.entry(7, number, -1, 0, payload) for number, payload in enumerate(payloads)]
        damaged_log = log.read_bytes()[:HEADER_BYTES] + b"\xff" * 4 + bodies[0]
        log.write_bytes(damaged_log + b"".join(SIZE.pack(len(body)) + body for body in bodies[1:]) + behind)
        found = read(log, bounds(FILES, str(log), 1 << 30))
        assert [each.body for each in found if each.body is not None] == bodies[1:], f"seed {seed}"
        assert found[0] == Found(HEADER_BYTES, 4 + len(bodies[0]), None, None)


def test_a_search_that_goes_on_behind_a_record_leaves_nothing_out(log: pathlib.Path) -> None:
    """
    An array of numbers whose sum is wrong and whose size is too large takes all that may be tried; what comes then lies
    behind the record's end as its size has it, and leads back to the first one in it.
    """
    rng = Random(1)
    numbers = struct.pack(">4096q", *(rng.randrange(300, 1 << 18 if at < 3000 else 3000) for at in range(4096)))
    payloads = [numbers, *(rng.randbytes(30_000) for _ in range(6))]
    bodies = [SUM.entry(7, number, -1, 0, payload) for number, payload in enumerate(payloads)]
    records = [SIZE.pack(len(body)) + body for body in bodies]
    wrong = SIZE.pack(len(bodies[0]) + 10_000) + bodies[0]
    log.write_bytes(log.read_bytes()[:HEADER_BYTES] + wrong + b"".join(records[1:]) + b"\xff" * 70_000)
    found = read(log, bounds(FILES, str(log), 1 << 30))
    assert [each.body for each in found if each.payload is not None] == bodies[1:]


@pytest.mark.parametrize("rest", [b"\0\0\0", b"\0\0\x07", b"\x07"])
def test_less_than_a_size_at_the_end(log: pathlib.Path, rest: bytes) -> None:
    """A hole, if it is not zeros, which a log may end with."""
    for zeros in (b"", bytes(4), bytes(4096)):
        log.write_bytes(data := log.read_bytes()[: OFFSETS[300]] + zeros + rest)
        found = read(log, bounds(FILES, str(log), 1 << 30))
        assert [each.body for each in found[:300]] == BODIES
        holes = [(each.offset + each.size, each.body) for each in found[300:]]
        assert holes == ([(len(data), None)] if any(rest) else [])


def test_any_damage_loses_only_what_it_hit(log: pathlib.Path) -> None:
    """At random places and of random lengths: each entry that was not hit is found, and no other."""
    data = log.read_bytes()
    for seed in range(60):
        rng = Random(seed)
        at = rng.randrange(HEADER_BYTES, len(data) - 100)
        size = rng.choice((1, 3, 30, 700))
        log.write_bytes(data)
        damaged(log, at, rng.randbytes(min(size, len(data) - at)))
        bodies = [each.body for each in read(log, bounds(FILES, str(log), 1 << 30)) if each.body is not None]
        hit = {number for number in range(300) if OFFSETS[number] < at + size and at < OFFSETS[number + 1]}
        assert set(bodies) >= {body for number, body in enumerate(BODIES) if number not in hit}, f"seed {seed}"


@pytest.mark.parametrize("split", [1000, 1 << 30])
def test_the_padding_of_a_log_that_was_written_past_the_cache_is_no_hole(tmp_path: pathlib.Path, split: int) -> None:
    """Not at its end either; and behind damage the records before the padding are found."""
    root = unpack("direct_bookie0_stopped", tmp_path)
    digest = Digest(DigestType.CRC32C, PASSWORD)

    def opened_so(ledger: int, entry: int, body: bytes) -> bytes | None:
        try:
            return digest.open(ledger, entry, body)
        except DigestMatch:
            return None

    path = str(root / "ledgers/current/0.log")
    found = [each for part in bounds(FILES, path, split) for each in entries(FILES, path, *part, opened_so)]
    assert (len(found), all(each.payload is not None for each in found)) == (515, True)
    damaged(root / "ledgers/current/0.log", found[100].offset, b"\xff" * 4)
    again = [each for part in bounds(FILES, path, split) for each in entries(FILES, path, *part, opened_so)]
    assert [each for each in again if each.body is not None] == found[:100] + found[101:]
