"""
Replicas of a state machine, their snapshots and what proves their reads, as values and pure functions.

In reading order: `applying_messages` (face), `applying` (face), `snapshots` (face), `lease` (face).
"""
