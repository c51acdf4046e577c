"""The places where metadata can be kept, for stories that hold in all of them."""

from tests.metadata.conftest import etcd, etcd_place, memory_place, place, sqlite_place, zookeeper, zookeeper_place

# SPDX-License-Identifier: Apache-2.0

__all__ = ["etcd", "etcd_place", "memory_place", "place", "sqlite_place", "zookeeper", "zookeeper_place"]
