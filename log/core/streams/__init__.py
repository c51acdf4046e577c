"""
Cursors, producers, retention and compaction, as values and pure functions.

In reading order: `marks` (face), `cursors` (face), `retention` (face), `rates` (face),
`compaction` (face), `producers` (face).
"""
