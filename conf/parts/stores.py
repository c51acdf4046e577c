"""
The options by which any metadata store is reached.

Knows: which stores have options of their own.  Does not know: what these are.
"""

from quire.conf.parts.etcd import EtcdOptions
from quire.conf.parts.zookeeper import ZooKeeperOptions

# SPDX-License-Identifier: Apache-2.0


class StoreOptions(ZooKeeperOptions, EtcdOptions):
    """Security of connections to a metadata store, whichever it is."""
