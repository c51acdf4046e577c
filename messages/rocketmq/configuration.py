"""
The rest of a broker's directory beside the log that it is to serve: topics, consumer offsets, lines of `broker.conf`.

Documents are given as found, byte for byte, unless they lack something.

Knows: which topics a broker makes itself, the names of its settings.
Does not know: where documents come from and go to.
"""

from collections.abc import Mapping

from quire.conf.messages import StoreSettings
from quire.messages.progress import Consumed
from quire.messages.rocketmq.building import Sizes
from quire.messages.rocketmq.documents import offsets_of, read, topics_of, with_offsets, with_topics, write

# SPDX-License-Identifier: Apache-2.0

# Topics that each broker makes itself, with settings of its own.
ITS_OWN = frozenset(
    {
        *("TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "OFFSET_MOVED_EVENT"),
        *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
    }
)
ITS_OWN_PREFIX = "rmq_sys_"
BATCH_QUEUE = {"queue.type": "BatchCQ"}


def completed_topics(found: bytes | None, queues: Mapping[str, int], batch: set[str]) -> tuple[bytes | None, list[str]]:
    """
    `topics.json` with a member for each of these topics, with so many queues, and the names of those that it lacked.
    `batch`: topics with batch queues.  `ValueError` if it can't be understood.
    """
    document = read(found) if found else None
    known = topics_of(document)
    lacking = {
        topic: count
        for topic, count in queues.items()
        if topic not in known and topic not in ITS_OWN and not topic.startswith(ITS_OWN_PREFIX)
    }
    if not lacking:
        return found, []
    document = with_topics(document, lacking)
    for topic in batch & lacking.keys():
        topics_of(document)[topic]["attributes"] |= BATCH_QUEUE
    return write(document), sorted(lacking)


def completed_offsets(found: bytes | None, offsets: Mapping[Consumed, int]) -> bytes | None:
    """`consumerOffset.json` with these offsets.  `ValueError` if it can't be understood."""
    document = read(found) if found else None
    known = offsets_of(document)
    if all(known.get(consumed) == position for consumed, position in offsets.items()):
        return found
    return write(with_offsets(document, offsets))


def broker_settings(directory: str, settings: StoreSettings, sizes: Sizes, group: str) -> list[str]:
    """The lines of `broker.conf` that matter to the directory.  `group`: the DLedger directory's name, or empty."""
    host, _colon, port = settings.address.rpartition(":")
    lines = [
        f"storePathRootDir={directory}",
        f"storePathCommitLog={directory}/commitlog",
        f"mappedFileSizeCommitLog={settings.file_bytes}",
        f"mappedFileSizeConsumeQueue={sizes.queue_file_bytes}",
        f"brokerIP1={host.strip('[]')}",
        f"listenPort={port}",
    ]
    if group:
        node = group.removeprefix("dledger-")
        lines += [
            "enableDLegerCommitLog=true",
            "dLegerGroup=<the group's name, as it was>",
            f"dLegerSelfId={node}",
            f"dLegerPeers={node}-{host}:<a free port>",
            f"mapperFileSizeBatchConsumeQueue={sizes.batch_queue_file_bytes}",
            f"maxHashSlotNum={sizes.index_slots}",
            f"maxIndexNum={sizes.index_rows}",
        ]
    return lines
