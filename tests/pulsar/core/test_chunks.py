"""Chunks in any order of messages, against a plain gathering of them."""

import random

from quire.pulsar.core.chunks import CHUNK_BYTES, Chunks, Incomplete, completed
from quire.pulsar.core.entry import decode_entry
from tests.pulsar import made

# SPDX-License-Identifier: Apache-2.0


def chunk(name, number, count, payload, entry=0):
    head = made.metadata((26, name), (27, count), (28, 99), (29, number))
    return decode_entry(made.entry(head, payload), 1, entry)


def test_messages_among_each_other():
    """Each message whose chunks all come in order is whole when the last one has come."""
    drawn = random.Random(3)
    for _ in range(50):
        chunks = Chunks(1 << 20)
        waiting = {f"m{number}": [b"%d.%d" % (number, at) for at in range(drawn.randint(2, 5))] for number in range(6)}
        next_of = dict.fromkeys(waiting, 0)
        done = {}
        while next_of:
            name = drawn.choice(list(next_of))
            at, parts = next_of[name], waiting[name]
            found = chunks.add(chunk(name, at, len(parts), parts[at]))
            if drawn.random() < 0.2 and at < len(parts) - 1:
                assert chunks.add(chunk(name, at, len(parts), b"again")) is None or at == 0
                if at == 0:  # begun again
                    chunks.add(chunk(name, 0, len(parts), parts[0]))
            next_of[name] += 1
            if next_of[name] == len(parts):
                del next_of[name]
                done[name] = found.payload
            else:
                assert found is None
        assert done == {name: b"".join(parts) for name, parts in waiting.items()}
        assert chunks.rest() == []


def test_what_lacks_its_first_chunks():
    """It is whole once these are found, and named if not."""
    chunks = Chunks(1 << 20)
    assert chunks.add(chunk("a", 1, 3, b"1", 4)) is None
    found = chunks.add(chunk("a", 2, 3, b"2", 5))
    assert isinstance(found, Incomplete)
    assert completed(found, {}) is None
    whole = completed(found, {0: b"0", 1: b"another try"})
    assert (whole.payload, whole.position) == (b"012", (1, 5, -1))
    assert "chunks 0 to 0" in found.missing("chunks").text


def test_what_is_given_up_for_a_bound():
    """Its end says so, for it may be whole; not where a chunk is really missing, nor where it began again."""
    for later, why in ((range(2, 4), CHUNK_BYTES), ((3,), "chunks"), (range(4), None)):
        chunks = Chunks(10)
        given = [chunk("a", 0, 4, b"0" * 9), chunk("b", 0, 2, b"b"), chunk("a", 1, 4, b"1" * 9, 2)]
        assert list(map(chunks.add, given)) == [None] * 3
        (left, other) = chunks.rest()
        assert ("no chunk behind 1 yet" in left.text, "no chunk behind 0 yet" in other.text) == (True, True)
        found = [chunks.add(chunk("a", number, 4, b"c", 3 + number)) for number in later][-1]
        if why is None:
            assert found.payload == b"cccc"
            continue
        assert (found.pieces.lost, completed(found, {})) == (why, None)
        told = found.missing(why, 10)
        assert (told.position.entry, told.why, "above 10 bytes" in told.text) == (6, why, why == CHUNK_BYTES)
        assert chunks.add(chunk("b", 1, 2, b"B")).payload == b"bB"
        assert chunks.rest() == []
