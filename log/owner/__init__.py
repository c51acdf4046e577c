"""
Owning a log: claims, the machine's driver, and what a user appends.

In reading order: `handle` (face), `appends` (face), `driver`, `ledger_effects`, `claims`,
`news`, `timers`, `encoder` (face).
"""
