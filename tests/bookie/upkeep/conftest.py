"""The places where metadata can be kept, for stories that hold in all of them."""

import pytest

from tests.metadata.conftest import (
    apache_etcd_place,
    etcd,
    etcd_place,
    memory_place,
    sqlite_place,
    zookeeper,
    zookeeper_place,
)

# SPDX-License-Identifier: Apache-2.0

__all__ = ["apache_etcd_place", "etcd", "etcd_place", "memory_place", "sqlite_place", "zookeeper", "zookeeper_place"]


@pytest.fixture(params=["memory", "sqlite", "zookeeper", "etcd", "apache_etcd"])
def place(request):
    return request.getfixturevalue(f"{request.param}_place")
