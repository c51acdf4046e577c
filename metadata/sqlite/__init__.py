"""
The metadata store in one SQLite file, for clusters on one machine.

In reading order: `store` (face), `session`, `session_file`, `watches`, `tree`, `nodes`, `file`,
`schema`, `tables`.
"""
