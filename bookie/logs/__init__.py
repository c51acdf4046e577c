"""
Entry logs: the files that hold entries, and the walk through one.

In reading order: `entry_logs` (face), `walk` (face).
"""
