"""
A log's records in the metadata store: where they are, and how a manifest changes.

In reading order: `paths` (face), `editing` (face).
"""
