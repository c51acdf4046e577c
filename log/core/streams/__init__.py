"""
Cursors, producers, retention and compaction, as values and pure functions.

In reading order: `cursor_value` (face), `retention` (face), `rates` (face), `producers` (face).
"""
