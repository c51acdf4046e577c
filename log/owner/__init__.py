"""
Owning a log: claims, the machine's driver, and what a user appends.

In reading order: `handle` (face), `appending` (face), `driver`, `rolling`, `lease` (face), `ledger_effects`,
`patience` (face), `claims` (face), `news`, `timers`.
"""
