"""
The metadata store in ZooKeeper, with Apache BookKeeper's layout.

In reading order: `store` (face), `cluster`, `cookies`, `registry`, `watches`, `repairs`, `ids`,
`scan`, `layout`, `calls`.
"""
