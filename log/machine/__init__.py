"""
Replicated state machines: a machine of the user's to which each process applies the same log.

In reading order: `machines` (face), `horizon`, `proofs`, `applier`, `following`, `snapshot_naming`, `snapshot_writing`,
`snapshot_reading`, `standing`, `driver` (face), `replica` (face).
"""
