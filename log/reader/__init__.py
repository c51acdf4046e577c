"""
Reading a log: one view of it in a process, and readers that cross its segments.

In reading order: `views` (face), `reader` (face), `view` (face),
`one_segment` (face), `batches` (face), `shared_ledgers`, `entry_cache`.
"""
