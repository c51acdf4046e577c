"""Frames to test with: what a live Apache BookKeeper sent, known frames of each kind, and ways to feed them."""

import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

from quire.protocol.messages import AddAcks, AddRun

# SPDX-License-Identifier: Apache-2.0

VECTORS = pathlib.Path(__file__).parent.parent / "vectors"

KEY = bytes.fromhex("2e2a69d870796fe05c0e77c52a29ce5e4222b758")  # of the password testPasswd
ENTRY = bytes.fromhex("00000000000000010000000000000000ffffffffffffffff0000000000000005e3a5f74d68656c6c6f")
SECOND = bytes.fromhex("00000000000000010000000000000001000000000000000000000000000000080146fc68616263")
LAC_BODY = bytes.fromhex("00000000000000010000000000000000b64e4ca2")

_E = ENTRY.hex()
_K = KEY.hex()

V2_FRAMES = {
    "ADD": f"0000004102010000{_K}{_E}",
    "recovery ADD": f"0000004102010006{_K}{_E}",
    "ADD ok": "00000018020100000000000000000000000000010000000000000000",
    "ADD fenced": "00000018020100000000006800000000000000010000000000000000",
    "READ": "000000140202000000000000000000010000000000000000",
    "fence READ": f"00000028020200010000000000000001ffffffffffffffff{_K}",
    "READ ok": f"0000004102020000000000000000000000000001{'00' * 8}{_E}",
    "READ no entry": "00000018020200000000000200000000000000010000000000000000",
    "BATCH": "00000028020700000000000000000001000000000000000000000000000000070000000a0000000000500000",
    "BATCH ok": "000000780207000000000000000000000000000100000000000000000000000000000007"
    + f"00000029{_E}00000027{SECOND.hex()}",
    "AUTH": "0000001a020300000a124175746844697361626c6564506c7567696e1200",
}
V3_FRAMES = {
    "ADD": f"000000500a06080310021801aa0645080110001a14{_K}2229{_E}",
    "recovery ADD": f"000000550a080803100218022064aa0648080110001a14{_K}2229{_E}a00601",
    "deferred-sync ADD": f"000000520a06080310021803aa0647080110001a14{_K}2229{_E}2801",
    "ADD ok": "000000130a060803100218011000aa0606080010011800",
    "ADD fenced": "000000150a0608031002180110f803aa060708f80310011800",
    "bare EUA": "0000000b0a0608031002180110f603",
    "READ": "0000000f0a06080310011804a2060408011000",
    "READ ok": f"000000490a060803100118041000a2063c0800100118002229{_E}28ffffffffffffffffff01",
    "READ no entry": "000000150a06080310011804109303a2060708930310011800",
    "fence READ": f"000000310a06080310011805a20626080110ffffffffffffffffff011a14{_K}a00601",
    "fence READ ok": f"000000470a060803100118051000a2063a0800100118ffffffffffffffffff012229{_E}",
    "recovery READ": f"0000002a0a080803100118062064a2061d080110001a14{_K}a00601",
    "long poll": "000000200a06080310011807a20615080110ffffffffffffffffff01200028e807a00602",
    "long poll expired": "0000001e0a060803100118071000a206110800100118ffffffffffffffffff012800",
    "WRITE_LAC": f"0000003b0a06080310061808ba0630080110001a14{_K}2214{LAC_BODY.hex()}",
    "WRITE_LAC ok": "000000110a060803100618081000ba060408001001",
    "READ_LAC": "0000000d0a06080310071809c206020801",
    "READ_LAC ok": f"000000520a060803100718091000c20645080010011a14{LAC_BODY.hex()}2229{_E}",
    "FORCE": "0000000d0a060803100a180ada06020801",
    "FORCE ok": "000000110a060803100a180a1000da060408001001",
    "INFO": "0000000d0a0608031008180bca06020803",
    "INFO ok": "000000150a0608031008180b1000ca0608080010e80718f403",
    "LIST": "0000000d0a060803100b180ce206020801",
    "START_TLS": "0000000b0a0608031009180dd20600",
    "START_TLS ok": "0000000d0a0608031009180d1000d20600",
    "START_TLS refused": "0000000b0a0608031009180d109403",
    "AUTH": "000000130a0608031005180eb206080a047361736c1200",
    "AUTH reply": "000000230a0608031005180e1000b206160a124175746844697361626c6564506c7567696e1200",
    "operation 12": "000000080a060803100c180f",
    "operation 12 refused": "0000000b0a060803100c180f109403",
}

i64 = st.one_of(st.integers(-2, 300), st.integers(-(1 << 63), (1 << 63) - 1))
ids = st.one_of(st.integers(0, 300), st.integers(0, (1 << 63) - 2))
txns = st.one_of(st.integers(0, 300), st.integers(0, (1 << 64) - 1))


def v2(name: str) -> bytes:
    return bytes.fromhex(V2_FRAMES[name])


def v3(name: str) -> bytes:
    return bytes.fromhex(V3_FRAMES[name])


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a vector file."""
    with open(VECTORS / f"{name}.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload


def captured(generation: int, direction: str) -> list[tuple[str, bytes, str]]:
    """
    (scenario, frame with its length, protobuf text) of what was on the wire; generation 2's capture holds a V3 side
    connection, left out.
    """
    found = [row for row in rows(f"wire_v{generation}") if row["direction"] == direction]
    return [
        (row["scenario"], framed(bytes.fromhex(row["frame"])), row.get("text", ""))
        for row in found
        if row["frame"].startswith("0a") == (generation == 3)
    ]


def flat(messages: Iterable[Any]) -> Iterator[Any]:
    """Messages with runs taken apart, so that two ways of cutting the same stream into runs compare equal."""
    for message in messages:
        if isinstance(message, AddRun):
            for index, body in enumerate(message.bodies):
                txn = None if message.txns is None else message.txns[index]
                flags = (
                    message.recovery,
                    message.priority,
                    message.deferred_sync,
                    message.version,
                    message.malformed,
                    message.answered_as,
                )
                yield ("add", message.ledger, message.first + index, body, message.master_key, txn, *flags)
        elif isinstance(message, AddAcks):
            for index in range(message.count):
                if message.txn is None:
                    yield ("ack", message.ledger, message.first + index, message.status)
                else:
                    yield ("ack", message.ledger, message.status, message.txn + index)
        else:
            yield message


def fed(make: Callable[[], Any], pieces: Iterable[bytes]) -> tuple[list[Any], str]:
    """
    All that comes out of a new receiver fed these pieces, taken apart, and the class of its failure ("" for none).
    """
    receiver = make()
    out = [message for piece in pieces for message in flat(receiver.feed(piece))]
    return out, type(receiver.failure).__name__ if receiver.failure else ""


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    """`data` cut at these offsets (taken modulo its length)."""
    marks = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:stop] for start, stop in itertools.pairwise(marks)]


def single_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]
