"""
Copies of logs between clusters: a log of one cluster, kept in another one with the same indexes.

In reading order: `lag`, `metrics` (face), `carrying`, `places`, `turning` (face), `mirror` (face).
"""
