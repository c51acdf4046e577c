"""
Reading a log: one view of it in a process, and readers that cross its segments.

In reading order: `views` (face), `reader` (face), `placed_entries`, `view` (face), `one_segment` (face), `batches`
(face), `copies`, `shared_ledgers`, `entry_cache`.
"""
