"""
Programs that run until they are stopped, and what runs inside them.

In reading order: `bookie` (face), `autorecovery` (face), `process` (face), `lifetime` (face), `serving`,
`recovering`, `own_copies`, `apache_paths`, `sanity`.
"""
