"""The places where metadata can be kept, for stories that hold in all of them."""

from tests.metadata.conftest import memory_place, place, sqlite_place, zookeeper, zookeeper_place

# SPDX-License-Identifier: Apache-2.0

__all__ = ["memory_place", "place", "sqlite_place", "zookeeper", "zookeeper_place"]
