"""
Clusters for tests of programs that use quire: a plugin of pytest, and the clusters that its fixtures make
(docs/testing.md).

In reading order: `plugin` (face), `cluster` (face), `in_process` (face), `processes` (face), `containers` (face).
"""
