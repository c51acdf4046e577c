"""Containers as `quire.testing` has them: killed, stopped, started, one more."""

from tests.containers.cluster import cluster

# SPDX-License-Identifier: Apache-2.0


def test_killed_stopped_started_added(image: str) -> None:
    """A writer lives through all of it, and everything is read back."""
    with cluster(image, 3) as made, made.connect() as bk:
        first, second, third = made.ids
        with bk.create_ledger() as writer:
            writer.append(b"0")
            made.kill(first)
            writer.append(b"1")
            added = made.add()
            assert made.running == [second, third, added]
            writer.append(b"2")
            made.start(first)
            made.stop(second)
            writer.append(b"3")
        with bk.open_ledger(writer.id) as reader:
            assert [entry.data for entry in reader] == [b"0", b"1", b"2", b"3"]
        assert made.running == [first, third, added]
