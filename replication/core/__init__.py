"""
What follows from metadata, and what an auditor decides, as values and pure functions.

In reading order: `fragments` (face), `absences` (face), `outlook` (face), `balance` (face),
`window` (face).
"""
