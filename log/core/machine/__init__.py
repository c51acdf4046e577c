"""
Replicas of a state machine and their snapshots, as values and pure functions.

In reading order: `applying_messages` (face), `applying` (face), `snapshot_ledger` (face), `snapshot_edit` (face).
"""
