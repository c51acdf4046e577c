"""
What an auditor decides, as values and pure functions.

In reading order: `absences` (face), `outlook` (face).
"""
