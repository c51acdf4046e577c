"""
One journal directory: the format of its files, the thread that writes them, replay.

In reading order: `format` (face), `writer` (face), `replay` (face), `mark` (face).
"""
