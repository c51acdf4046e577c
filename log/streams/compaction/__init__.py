"""
Compaction by key: the newest record of each key, in ledgers beside the log.

In reading order: `compacting` (face), `input`, `ledgers`.
"""
