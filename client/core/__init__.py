"""
The sans-IO machines of the client.

In reading order: `quorum` (face), `append` (face), `coverage` (face), `read` (face), `recovery_messages` (face),
`recovery_reads`, `recovery` (face).
"""
