"""What a broker is told beside the log: documents get what they lack, and nothing else; lines of its configuration."""

import pytest

from quire.conf.messages import StoreSettings
from quire.messages.progress import Consumed
from quire.messages.rocketmq.building import Sizes
from quire.messages.rocketmq.configuration import broker_settings, completed_offsets, completed_topics
from quire.messages.rocketmq.documents import offsets_of, read, topics_of

# SPDX-License-Identifier: Apache-2.0

SIZES = Sizes(queue_file_bytes=2000)


def test_topics_that_are_there_stay_as_they_are():
    """Byte for byte if none is lacking, also where only topics lack that a broker makes itself."""
    found = b'{ "topicConfigTable":{"T":{"perm":4}} }'
    queues = {"T": 8, "SCHEDULE_TOPIC_XXXX": 3, "rmq_sys_wheel_timer": 1}
    assert completed_topics(found, queues, set()) == (found, [])
    made, lacking = completed_topics(found, queues | {"%RETRY%g": 1, "I": 2}, {"I"})
    assert lacking == ["%RETRY%g", "I"]
    topics = topics_of(read(made))
    assert topics["T"] == {"perm": 4}
    assert (topics["I"]["readQueueNums"], topics["I"]["attributes"]) == (2, {"queue.type": "BatchCQ"})
    assert topics["%RETRY%g"]["attributes"] == {}


def test_without_documents():
    """They are made if there is something to say."""
    assert completed_topics(None, {}, set()) == (None, [])
    assert list(topics_of(read(completed_topics(None, {"T": 1}, set())[0]))) == ["T"]
    assert completed_offsets(None, {}) is None
    consumed = {Consumed("g", "T", 0): 7}
    assert offsets_of(read(completed_offsets(None, consumed))) == consumed


def test_offsets_take_the_place_of_older_ones():
    """Only if one differs is the document written anew."""
    found = b'{"offsetTable": {"T@g":{0:1, 1:4}}}'
    assert completed_offsets(found, {Consumed("g", "T", 1): 4}) == found
    assert completed_offsets(found, {Consumed("g", "T", 1): 5}) == b'{"offsetTable":{"T@g":{0:1,1:5}}}'
    with pytest.raises(ValueError, match="offsetTable"):
        completed_offsets(b'{"offsetTable":[]}', {})


def test_settings_of_a_broker():
    """A plain directory needs its sizes and the host of its ids; DLedger's mode and node beside that."""
    settings = StoreSettings.made(address="[::1]:10911", progress="p", file_bytes=65_536)
    lines = broker_settings("/d", settings, SIZES, "")
    assert lines == [
        "storePathRootDir=/d",
        "storePathCommitLog=/d/commitlog",
        "mappedFileSizeCommitLog=65536",
        "mappedFileSizeConsumeQueue=2000",
        "brokerIP1=::1",
        "listenPort=10911",
    ]
    more = broker_settings("/d", settings, SIZES, "dledger-n0")
    assert more[: len(lines)] == lines
    assert {line.split("=")[0] for line in more[len(lines) :]} == {
        *("enableDLegerCommitLog", "dLegerGroup", "dLegerSelfId", "dLegerPeers"),
        *("mapperFileSizeBatchConsumeQueue", "maxHashSlotNum", "maxIndexNum"),
    }
    assert "dLegerSelfId=n0" in more
