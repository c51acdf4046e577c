"""
A log's records in the metadata store and its ledgers: where they are, and how a manifest changes.

In reading order: `paths` (face), `editing` (face), `ledgers` (face), `belonging` (face), `settling` (face),
`leases` (face), `holds` (face), `ages` (face), `context` (face), `names` (face),
`metrics` (face).
"""
