"""
The tree in one SQLite file, for clusters on one machine.

In reading order: `tree` (face), `nodes`, `session`, `session_file`, `watches`, `file`, `tables`.
"""
