"""
HTTP: metrics, health, garbage collection, index, repair.

In reading order: `http` (face), `bookie_paths` (face), `gc_paths`, `index_paths` (face), `recovery_paths` (face),
`site` (face), `metrics` (face).
"""
