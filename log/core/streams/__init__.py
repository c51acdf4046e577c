"""
Cursors, producers, retention and compaction, as values and pure functions.

In reading order: `marks` (face), `cursor_entries` (face), `cursor_value` (face), `retention` (face), `rates` (face),
`compaction` (face), `producers` (face).
"""
