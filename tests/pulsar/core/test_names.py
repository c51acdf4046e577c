"""Names of topics and of their nodes."""

import pytest

from quire.protocol.pulsar_errors import NoSuchTopic
from quire.pulsar.core.names import TopicName, decoded, encoded

# SPDX-License-Identifier: Apache-2.0


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("t", "persistent://public/default/t"),
        ("a/b/t", "persistent://a/b/t"),
        ("persistent://a/b/t", "persistent://a/b/t"),
        ("persistent://a/cluster/b/t", "persistent://a/cluster/b/t"),
    ],
)
def test_forms_of_a_name(given, full):
    """As Pulsar's tools take them; with a cluster in it as in old ones."""
    assert str(TopicName.parse(given)) == full


@pytest.mark.parametrize(
    "given", ["", "a/t", "/b/t", "a//t", "a/b/", "a/b/c/d", "non-persistent://a/b/t", "http://a/b/t"]
)
def test_what_is_no_name(given):
    """The forms are in the text."""
    with pytest.raises(NoSuchTopic, match=r"a topic is|non-persistent"):
        TopicName.parse(given)


@pytest.mark.parametrize(
    ("name", "node"),
    [("a b", "a+b"), ("ü/x", "%C3%BC%2Fx"), ("A-z_0.9*", "A-z_0.9*"), ("~+%", "%7E%2B%25"), ("😀", "%F0%9F%98%80")],
)
def test_names_of_nodes(name, node):
    """As Java encodes a form."""
    assert encoded(name) == node
    assert decoded(node) == name


def test_partitions():
    """A partition knows its topic, and its schemas are those of the topic."""
    topic = TopicName.parse("a/b/t")
    part = topic.of_partition(12)
    assert (str(part), part.partition, part.base) == ("persistent://a/b/t-partition-12", 12, topic)
    assert (topic.partition, topic.base) == (-1, topic)
    assert TopicName.parse("t-partition-01").partition == -1
    assert part.ledgers_path == "/managed-ledgers/a/b/persistent/t-partition-12"
    assert part.schemas_path == topic.schemas_path == "/schemas/a/b/t"
    assert topic.partitions_path == "/admin/partitioned-topics/a/b/persistent/t"
