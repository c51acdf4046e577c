"""
The directories that an Apache bookie left: read in place, and taken over.

In reading order: `journal` (face), `index` (face), `idx_files` (face), `left_index` (face), `takeover` (face).
"""
