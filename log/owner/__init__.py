"""
Owning a log: claims, the machine's driver, and what a user appends.

In reading order: `handle` (face), `appends` (face), `producing`, `window` (face), `preparing`, `driver`, `rolling`,
`lease` (face), `ledger_effects`, `patience` (face), `claims` (face), `news`, `timers`, `encoder` (face).
"""
