"""
The tree in ZooKeeper, with Apache BookKeeper's layout.

In reading order: `store` (face), `session`, `client`, `gathering`, `answers`.
"""
