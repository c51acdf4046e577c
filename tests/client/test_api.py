"""The Twisted face on a fake cluster: the life of a ledger from create to delete."""

from tests.client.cluster import FakeCluster


async def collect(generator):
    return [entry async for batch in generator for entry in batch]


def test_create_append_close_read():
    """What was appended is read back, in order, after the close."""
    cluster = FakeCluster()
    client = cluster.client()
    writer = cluster.succeed(client.create_ledger())
    assert cluster.succeed(writer.append(b"one")) == 0
    assert cluster.succeed(writer.append_many([b"two", b"three"])) == range(1, 3)
    assert writer.last_add_confirmed == 2
    assert writer.length == 11
    cluster.succeed(writer.close())
    metadata = cluster.metadata(writer.id)
    assert metadata.is_closed
    assert (metadata.last_entry, metadata.length) == (2, 11)
    reader = cluster.succeed(client.open_ledger(writer.id))
    assert [entry.data for entry in cluster.succeed(reader.read(0, 2))] == [b"one", b"two", b"three"]
    assert [entry.entry_id for entry in cluster.succeed(collect(reader.stream()))] == [0, 1, 2]
