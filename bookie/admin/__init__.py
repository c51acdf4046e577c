"""
HTTP: metrics, health, garbage collection, index.

In reading order: `http` (face), `bookie_paths`, `gc_paths`, `index_paths` (face), `site` (face), `metrics` (face).
"""
