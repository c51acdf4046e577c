"""Writers, readers and written ledgers on a fake cluster, as several tests need them."""


def created(cluster, shape=(3, 3, 2), options=None, **arguments):
    client = cluster.client(**(options or {}))
    return cluster.succeed(
        client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2], **arguments)
    )


def ensemble(cluster, writer):
    return cluster.metadata(writer.id).last_fragment.bookies


def holding(cluster, op, *names):
    cluster.judge = lambda request: "hold" if request.op == op and request.bookie in names else "pass"


async def collect(generator):
    return [entry async for batch in generator for entry in batch]


def written(cluster, count=50, shape=(3, 3, 2), close=True, **options):
    client = cluster.client(**options)
    writer = cluster.succeed(client.create_ledger(ensemble_size=shape[0], write_quorum=shape[1], ack_quorum=shape[2]))
    if count:
        cluster.succeed(writer.append_many([b"%d" % entry for entry in range(count)]))
    cluster.spin(0.1)
    if close:
        cluster.succeed(writer.close())
    return client, writer


def payloads(entries):
    return [entry.data for entry in entries]


def follow(cluster, reader, timeout):
    """A tail in the background: the entries so far, and what became of it."""
    got = []

    async def run():
        async for batch in reader.tail(timeout):
            got.extend(batch)

    return got, cluster.outcome(run())
