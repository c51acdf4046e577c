"""
Conclusions from metadata and an auditor's decisions, as values and pure functions.

In reading order: `fragments` (face), `absences` (face), `outlook` (face), `balance` (face),
`window` (face), `progress` (face).
"""
