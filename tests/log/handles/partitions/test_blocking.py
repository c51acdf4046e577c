"""Partitioned logs in the blocking face, on real bookies."""

from quire.log import connect, partition_for
from tests.real_cluster import RealCluster

# SPDX-License-Identifier: Apache-2.0


def test_a_partitioned_log_of_a_script(tmp_path):
    """Written by key, read with its partitions, consumed; an iteration that is left goes on where it was."""
    with RealCluster(tmp_path, 3) as cluster, connect(cluster.uri) as logs:
        logs.create("orders", partitions=2)
        with logs.own_partitions("orders") as owner:
            done = owner.append_many([b"%d" % number for number in range(20)], keys=[b"a", b"b"] * 10)
            assert done.partitions == [partition_for(b"a", 2), partition_for(b"b", 2)] * 10
        with logs.read_partitions("orders") as reader:
            for partition, record in reader:
                first = partition, record.key, record.value
                break
            rest = [(partition, record.key, record.value) for partition, record in reader]
            assert len({first, *rest}) == 20
            for key in (b"a", b"b"):
                values = [int(value) for _partition, found, value in (first, *rest) if found == key]
                assert values == sorted(values)
            batches = list(logs.read_partitions("orders", {0: 0}, partitions=[0]).batches())
            assert {each.partition for each in batches} == {0}
        with logs.partition_cursor("orders", "billing", start="begin") as cursor:
            for partition, record in cursor.read():
                cursor.ack(partition, record.index)
            assert cursor.backlog().records == 0
