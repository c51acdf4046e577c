"""
The upkeep of logs: ledgers that no log names are found and deleted, logs are checked.

In reading order: `orphans` (face), `removal`, `named`, `tagged`, `checking` (face), `held` (face),
`segments` (face).
"""
