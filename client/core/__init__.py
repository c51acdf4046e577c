"""
The sans-IO machines of the client.

In reading order: `machine` (face), `quorum` (face), `append` (face), `coverage` (face), `read` (face),
`recovery_messages` (face), `recovery_reads`, `recovery` (face).
"""
