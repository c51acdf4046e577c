"""Records of ours at the boundaries of their fields, as RocketMQ's own decoder reads them."""

import hashlib
import pathlib

from quire.messages.core.record import Host, pack, unpack
from tests.interop.rocketmq.broker import client

# SPDX-License-Identifier: Apache-2.0

FOUR, SIX = Host(b"\x7f\0\0\1", 1234), Host(bytes(15) + b"\1", 1234)


def test_boundaries(tmp_path: pathlib.Path) -> None:
    """Topics up to 255 bytes, properties up to 32,767, bodies from none to 4 MiB, hosts of both kinds, with sums."""
    longest = b"fill\x01" + b"p" * (32_767 - 6) + b"\x02"
    records = [
        *(pack("t" * length, b"x", born_host=FOUR, store_host=FOUR) for length in (1, 127, 128, 255)),
        *(pack("\u00e4" * 63, b"", born_host=born, store_host=store) for born in (FOUR, SIX) for store in (FOUR, SIX)),
        pack("T", bytes(4 << 20), queue=7, queue_offset=1 << 40, offset=1 << 41, born_host=FOUR, store_host=SIX),
        pack("T", b"b", properties=longest, born_host=FOUR, store_host=FOUR),
        pack("T", b"b", properties=longest[:-21] + b"\x02", with_crc=True, born_host=SIX, store_host=FOUR),
        pack("T", b"b", flag=-1, sys_flag=0x8, prepared_offset=5, reconsume_times=3, born_host=FOUR, store_host=FOUR),
    ]
    with client(tmp_path) as module:
        for raw in records:
            (theirs,) = module.call("decode", records=raw.hex())["said"]
            ours = unpack(raw)
            assert theirs["topic"] == ours.topic
            assert (theirs["queue"], theirs["queue_offset"], theirs["offset"]) == (
                ours.queue,
                ours.queue_offset,
                ours.offset,
            )
            assert theirs["body_sha1"] == hashlib.sha1(ours.body).hexdigest()
            assert (theirs["size"], theirs["flag"], theirs["sys_flag"]) == (len(raw), ours.flag, ours.sys_flag)
            assert (theirs["id"], theirs["prepared"]) == (ours.message_id, ours.prepared_offset)
            assert theirs["reconsume"] == ours.reconsume_times
            theirs["properties"].pop("propertiesString", None)  # what its decoder was asked to leave in
            assert theirs["properties"] == ours.properties
