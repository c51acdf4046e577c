"""
What replicas and linearizable reads rest on, as values and pure functions.

In reading order: `lease` (face).
"""
