"""A Pulsar broker on bookies in containers, of which one is killed, and all are rolled."""

from pathlib import Path

from tests.containers.cluster import cluster
from tests.interop.pulsar.broker import Broker
from tests.requirements import need

# SPDX-License-Identifier: Apache-2.0

STEP = 1000  # messages between two blows


def test_its_messages_are_kept(image: str, tmp_path: Path) -> None:
    """None is refused, none is lost, and they come in order."""
    need("pulsar")
    sent = 0
    with cluster(image) as made:
        uri = made.uri.replace("zk:", "zk+hierarchical:")
        with Broker(tmp_path, uri) as broker, broker.client() as client:

            def send() -> None:
                nonlocal sent
                client.call("send", **{"from": sent, "to": sent + STEP})
                sent += STEP

            send()
            made.kill(made.ids[0])
            send()
            made.start(made.ids[0])
            for bookie in made.ids:
                made.stop(bookie)
                send()
                made.start(bookie)
            assert client.call("receive", **{"from": 0, "to": sent})["done"] == sent == 6 * STEP
