"""
Work beside requests: garbage collection, compaction, a new index.

In reading order: `garbage` (face), `deletions`, `store_guard` (face),
`store_notes` (face), `space` (face), `compaction`, `index_compaction`, `rebuild` (face).
"""
