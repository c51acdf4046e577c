"""
Replicated state machines: a machine of the user's to which each process applies the same log.

In reading order: `machines` (face), `applier`, `following`, `snapshots`, `standing`, `driver` (face), `replica` (face).
"""
