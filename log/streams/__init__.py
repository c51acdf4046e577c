"""
What a log does for its streams of records beside keeping them: records go by age and size, slow cursors are passed by,
producers are remembered.

In reading order: `expiring` (face), `quota` (face), `marks` (face), `replaying` (face).
"""
