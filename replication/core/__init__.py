"""
Conclusions from metadata and an auditor's decisions, as values and pure functions.

In reading order: `fragments` (face), `absences` (face), `known_copies` (face),
`balance` (face), `progress` (face).
"""
