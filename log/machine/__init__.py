"""
Replicated state machines: a machine of the user's to which each process applies the same log.

In reading order: `machines` (face), `proofs`, `applier`, `snapshots` (face), `standing` (face), `driver` (face),
`replica` (face).
"""
