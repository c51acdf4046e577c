"""The places where metadata can be kept, for processes that are killed while they hold something there."""

from tests.metadata.conftest import sqlite_place, zookeeper, zookeeper_place

# SPDX-License-Identifier: Apache-2.0

__all__ = ["sqlite_place", "zookeeper", "zookeeper_place"]
