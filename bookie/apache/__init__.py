"""
The directories that an Apache bookie left: read in place, and taken over.

In reading order: `journal` (face), `index` (face), `idx_files` (face), `joined_index`, `left_index` (face), `doubts`
(face), `takeover` (face).
"""
