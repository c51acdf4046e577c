"""
The sans-IO machines of the client.

In reading order: `quorum` (face), `append` (a room of its own), `coverage` (face), `read` (face), `recovery_messages` (face),
`recovery` (face).
"""
