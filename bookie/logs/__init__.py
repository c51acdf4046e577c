"""
Entry logs: the files that hold entries, and the walk through one.

In reading order: `format` (face), `entry_logs` (face), `walk` (face).
"""
