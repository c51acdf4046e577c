"""
Loads that `quire bench` makes, and what it measures.

In reading order: `generators` (face).
"""
