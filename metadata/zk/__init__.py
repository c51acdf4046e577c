"""
The metadata store in ZooKeeper, with Apache BookKeeper's layout.

In reading order: `store` (face), `cluster`, `cookies`, `registry`, `watches`, `records`, `repairs`, `auditing`, `ids`,
`scan`, `layout`, `calls`.
"""
