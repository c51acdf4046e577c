"""
The metadata store in ZooKeeper, with Apache BookKeeper's layout.

In reading order: `store` (face), `cluster`, `cookies`, `registry`, `session`, `answers`, `node_errors`, `watches`,
`records`, `ids`, `scan`, `layout`.
"""
