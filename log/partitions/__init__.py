"""
Handles of all partitions of a log at once: an owner, a reader, a cursor, each made of those of the partitions.

In reading order: `following` (face), `owner` (face), `reader` (face), `cursor` (face).
"""
