"""A Pulsar broker on bookies that were started with the file that Pulsar is shipped with."""

import pathlib

from tests.interop import peer
from tests.interop.ours import Bookies, pulsars_keys
from tests.interop.pulsar.broker import Broker

# SPDX-License-Identifier: Apache-2.0

HALF, ALL = 10_000, 20_000


def test_its_messages_are_kept_when_a_bookie_is_killed(tmp_path: pathlib.Path) -> None:
    """None is refused, none is lost, and they come in order; the logs of the bookies name what is not honoured."""
    with (
        peer.Cluster(bookies=0) as apache,
        Bookies(tmp_path, apache.metadata, 4, **pulsars_keys(autoRecoveryDaemonEnabled="true")) as bookies,
        Broker(tmp_path, apache.metadata) as broker,
        broker.client() as client,
    ):
        client.call("send", **{"from": 0, "to": HALF})
        bookies.kill(bookies.ids[0])
        client.call("send", **{"from": HALF, "to": ALL})
        assert client.call("receive", **{"from": 0, "to": ALL})["done"] == ALL
    for bookie in bookies.all:
        log = bookie.log.read_text()
        assert "3 differing: maxPendingReadRequestsPerThread=2500" in log
        assert "Traceback" not in log
