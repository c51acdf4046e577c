"""
A whole cluster on one machine: bookies and, on request, AutoRecovery and ZooKeeper.

In reading order: `cluster` (face), `process` (face), `authority`, `zookeeper` (face).
"""
