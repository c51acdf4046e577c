"""
A whole cluster on one machine: bookies and, on request, ZooKeeper.

In reading order: `cluster` (face), `zookeeper` (face).
"""
