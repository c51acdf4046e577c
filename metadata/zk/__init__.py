"""
The metadata store in ZooKeeper, with Apache BookKeeper's layout.

In reading order: `store` (face), `cluster`, `registry`, `watches`, `ids`, `scan`, `layout`,
`calls`.
"""
