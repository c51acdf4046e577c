"""
HTTP: metrics, health, garbage collection, index.

In reading order: `http` (face), `bookie_paths` (face), `gc_paths` (face), `index_paths` (face), `metrics` (face).
"""
