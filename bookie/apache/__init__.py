"""
What an Apache bookie left: read in place, and taken over.

In reading order: `journal` (face), `index`, `idx_files`, `joined_index` (face), `takeover` (face).
"""
