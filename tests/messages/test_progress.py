"""Consumer offsets and documents as records of the progress log."""

import random

import pytest

from quire.messages.progress import (
    LONG,
    PIECE_BYTES,
    Consumed,
    DocumentHead,
    Progress,
    document_records,
    offset_key,
)
from quire.protocol.message_errors import StoreDamaged

# SPDX-License-Identifier: Apache-2.0


def pieces(data):
    return [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]


def test_a_document_with_pieces_of_zeros():
    """They are left out, and come back."""
    data = bytes(PIECE_BYTES) + random.Random(1).randbytes(PIECE_BYTES) + bytes(3 * PIECE_BYTES) + b"\0\1\0"
    records = list(document_records("timerwheel", pieces(data)))
    assert [key for key, _value in records] == [b"p\x01timerwheel\x011", b"p\x01timerwheel\x015", b"h\x01timerwheel"]
    progress = Progress(with_documents=True)
    for key, value in records:
        progress.apply(key, value)
    assert progress.documents() == {"timerwheel": len(data)}
    assert b"".join(progress.document("timerwheel")) == data


@pytest.mark.parametrize("data", [b"", b"x", bytes(PIECE_BYTES), bytes(PIECE_BYTES + 1)])
def test_documents_of_each_size(data):
    """Also an empty one, and one of zeros only."""
    progress = Progress(with_documents=True)
    for key, value in document_records("config/a b", pieces(data)):
        progress.apply(key, value)
    assert b"".join(progress.document("config/a b")) == data


def test_a_document_that_lacks_a_piece():
    """It is damaged, and is not given as if it were whole."""
    progress = Progress(with_documents=True)
    for key, value in document_records("a", [b"one"]):
        if key.startswith(b"h"):
            progress.apply(key, value)
    with pytest.raises(StoreDamaged, match="the document a is not as it came in"):
        list(progress.document("a"))


def test_offsets():
    """The newest of each counts; keys that are not known are passed over, values that can't be read are damage."""
    progress, key = Progress(), offset_key(Consumed("g", "%RETRY%g", 2))
    assert key == b"o\x01g\x01%RETRY%g\x012"
    for position in (1, 9, 4):
        progress.apply(key, LONG.pack(position))
    progress.apply(b"x\1later", b"?")
    assert progress.offsets == {Consumed("g", "%RETRY%g", 2): 4}
    for wrong_key, value in ((key, b"short"), (b"o\1g\1T\1two", LONG.pack(1)), (b"h\1a", b"[]"), (b"h\1a", b"{}")):
        with pytest.raises(StoreDamaged):
            progress.apply(wrong_key, value)
    assert DocumentHead.decode(DocumentHead(5, (0,), 7).encode()) == DocumentHead(5, (0,), 7)
