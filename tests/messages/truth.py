"""
What a store holds beside what its masters told: the truth of rules M1 to M3, by the reference.

Knows: records of a log, answers of puts.  Does not know: who put, what went wrong meanwhile.
"""

# SPDX-License-Identifier: Apache-2.0

from tests.messages.reference import parser


async def all_of(logs, name="pay"):
    """All records of a log that can be read, by the reference: (place in the log, record)."""
    found = []
    async for batch in (await logs.read(name)).batches():
        found += zip(batch.positions, map(parser.unpack, batch.values), strict=True)
    return found


def dense(found):
    """Positions of each queue are 0, 1, 2, … in the order of the log; the next ones."""
    following = {}
    for _at, record in found:
        key = (record["topic"], record["queue"])
        assert record["queue_offset"] == following.get(key, 0), key
        following[key] = record["queue_offset"] + 1
    return following


def unique_id(record):
    return record["properties"]["UNIQ_KEY"]


def judge(found, told, lost=()):
    """
    Positions are dense, each answer is true, no id was told twice, no message is twice in the store, and none of which
    it was said that it is not; store times never fall.
    """
    dense(found)
    by_place = dict(found)
    assert len({put.message_id for put in told}) == len(told), "an id was told twice"
    for put in told:
        record = by_place[put.offset]
        assert (record["offset"], record["queue_offset"]) == (put.offset, put.position)
        assert (record["store_ms"], record["size"]) == (put.store_ms, put.size)
        assert parser.message_id(record) == put.message_id
        assert unique_id(record) == put.unique_id
    there = {unique_id(record) for _at, record in found}
    assert len(there) == len(found), "a message is twice in the store"
    assert not set(lost) & there, "a message of which it was said that it is not there is there"
    times = [record["store_ms"] for _at, record in found]
    assert times == sorted(times)
    assert all(at == record["offset"] for at, record in found)
