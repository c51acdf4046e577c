"""
The cost of the codecs: microseconds of CPU per entry for packing, parsing and answering adds, and for reads, in both
generations.

    python -m bench.codecs [entries in a run, default 50]

Best of several rounds, so other load on the machine disturbs little.  Goals (V2, 100 bytes): parse and acknowledge 0.6
us, pack with CRC32C 1.3 us; V3 parses within twice of V2.
"""

import random
import sys
import time
from collections.abc import Callable

from quire.protocol import v2, v3, wire
from quire.protocol.batch import AddBatch
from quire.protocol.digest import Digest, DigestType
from quire.protocol.errors import Status
from quire.protocol.messages import AddRun, BatchRead, BatchReply, Read, ReadReply

# SPDX-License-Identifier: Apache-2.0

ROUNDS = 9
KEPT_BUSY_S = 0.01  # of one round
DIGEST = Digest(DigestType.CRC32C, b"secret")


def microseconds(work: Callable[[], object], entries: int) -> float:
    """CPU time per entry of the best round."""
    start = time.process_time()
    work()
    times = max(1, int(KEPT_BUSY_S / max(time.process_time() - start, 1e-7)))
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(times):
            work()
        best = min(best, time.process_time() - start)
    return best / times / entries * 1e6


def adds(sizes: list[int]) -> dict[str, float]:
    """A run of adds of these payload sizes, from packing to its acknowledgements."""
    count, first = len(sizes), 1_000_000
    payloads = [bytes(size) for size in sizes]
    row: dict[str, float] = {}

    def batch() -> AddBatch:
        return AddBatch(DIGEST, 7, first, first - 1, 0, payloads)

    for name, pack, replies in (
        ("V2", lambda: v2.pack_adds(batch()), v2.Replies()),
        ("V3", lambda: v3.pack_adds(batch(), first), v3.Replies()),
    ):
        data, requests = pack(), wire.Requests()
        (run,) = requests.feed(data)
        assert isinstance(run, AddRun)
        acks = wire.add_acks(run, Status.EOK)
        assert len(run.bodies) == count
        row[f"{name} pack"] = microseconds(pack, count)
        row[f"{name} parse"] = microseconds(lambda requests=requests, data=data: requests.feed(data), count)
        row[f"{name} ack"] = microseconds(lambda run=run: wire.add_acks(run, Status.EOK), count)
        row[f"{name} parse acks"] = microseconds(lambda replies=replies, acks=acks: replies.feed(acks), count)
    return row


def reads(count: int) -> dict[str, float]:
    """Reads of 1 KiB, entry by entry in both generations, then a batch read with its digests checked."""
    bodies = [DIGEST.entry(7, entry, -1, 0, bytes(1024)) for entry in range(count)]
    row: dict[str, float] = {}
    for name, request, pack, replies in (
        ("V2", Read(7, 0), v2.pack_read, v2.Replies()),
        ("V3", Read(7, 0, txn=5000, version=3), v3.pack_request, v3.Replies()),
    ):
        data, requests = pack(request) * count, wire.Requests()
        reply = ReadReply(Status.EOK, 7, 0, bodies[0])
        answers = wire.answer(request, reply) * count
        row[f"{name} parse"] = microseconds(lambda requests=requests, data=data: requests.feed(data), count)
        row[f"{name} answer"] = microseconds(lambda request=request, reply=reply: wire.answer(request, reply), 1)
        row[f"{name} parse answers"] = microseconds(
            lambda replies=replies, answers=answers: replies.feed(answers), count
        )
    batch, found = BatchRead(7, 0, 1, 0, 1 << 22), BatchReply(Status.EOK, 7, 0, 1, bodies)
    answers, receiver = wire.answer(batch, found), v2.Replies()
    row["batch answer"] = microseconds(lambda: wire.answer(batch, found), count)
    row["batch parse answers"] = microseconds(lambda: receiver.feed(answers), count)
    row["check digests"] = microseconds(lambda: DIGEST.open_run(7, 0, bodies), count)
    return row


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    mixed = random.Random(1)
    rows = {
        f"adds, {count} of 100 bytes": adds([100] * count),
        f"adds, {count} of 1 KiB": adds([1024] * count),
        f"adds, {count} of 50 to 300 bytes": adds([mixed.randrange(50, 300) for _ in range(count)]),
        f"reads, {count} of 1 KiB": reads(count),
    }
    for name, row in rows.items():
        print(f"{name} (us per entry)")
        print("    " + ", ".join(f"{what} {cost:.2f}" for what, cost in row.items()))


if __name__ == "__main__":
    main()
