"""
A log's records in the metadata store and its ledgers: where they are, and how a manifest changes.

In reading order: `paths` (face), `editing` (face), `ledgers` (face), `leases` (face),
`holds` (face), `context` (face), `metrics` (face).
"""
