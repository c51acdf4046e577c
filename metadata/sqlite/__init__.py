"""
The metadata store in one SQLite file, for clusters on one machine.

In reading order: `store` (face), `session`, `session_file`, `watches`, `records`, `record_watches`, `repairs`,
`auditing`, `repair_watches`, `file`, `schema`, `tables`.
"""
