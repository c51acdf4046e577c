"""
What an Apache bookie left: read in place, and taken over.

In reading order: `journal` (face), `index` (face), `joined_index` (face), `takeover` (face).
"""
