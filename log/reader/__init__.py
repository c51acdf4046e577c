"""
Reading a log: one view of it in a process, and readers that cross its segments.

In reading order: `reader` (face), `view` (face), `one_segment`, `batches`, `finding`.
"""
