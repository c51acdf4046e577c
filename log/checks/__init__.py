"""
Looking at a log without a change to it: its segments by pages, and whether all that it names is there.

In reading order: `checking` (face), `held` (face), `segments` (face).
"""
