"""
HTTP: metrics, health, garbage collection, index, repair; and the gate in front of them.

In reading order: `http` (face), `gate` (face), `bookie_paths` (face), `recovery_paths` (face),
`metrics` (face), `apache_metrics` (face).
"""
