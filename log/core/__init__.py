"""
What a log is and what may happen to it, as values and pure functions.

In reading order: `frame` (face), `manifest` (face), `edits` (face), `ownership` (face),
`ownership_messages` (face).
"""
