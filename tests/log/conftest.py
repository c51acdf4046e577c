"""The three places where the records of logs can be."""

from tests.metadata.conftest import memory_place, sqlite_place, zookeeper, zookeeper_place

# SPDX-License-Identifier: Apache-2.0

__all__ = ["memory_place", "sqlite_place", "zookeeper", "zookeeper_place"]
