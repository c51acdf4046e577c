"""
One journal directory: the format of its files, the thread that writes them, replay.

In reading order: `format` (face), `extent` (face), `mark` (face), `segments` (face), `replay` (face),
`writer` (face).
"""
