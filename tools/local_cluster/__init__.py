"""
A whole cluster on one machine: bookies and, on request, AutoRecovery and ZooKeeper or etcd.

In reading order: `cluster` (face), `process` (face), `authority`, `guarded` (face), `zookeeper` (face), `etcd` (face).
"""
