"""
HTTP: metrics, health, garbage collection, index, repair; and the gate in front of them.

In reading order: `http` (face), `gate` (face), `bookie_paths` (face), `gc_paths`, `index_paths` (face),
`recovery_paths` (face), `site` (face), `metrics` (face).
"""
