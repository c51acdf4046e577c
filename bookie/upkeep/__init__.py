"""
What runs beside requests: garbage collection, compaction, a new index.

In reading order: `garbage` (face), `space` (face), `compaction`, `rebuild` (face).
"""
