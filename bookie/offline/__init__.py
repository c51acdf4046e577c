"""
Commands on the directories of a stopped bookie.

In reading order: `stopped` (face), `verify` (face), `listing` (face), `salvage` (face), `rebuild` (face),
`export` (face).
"""
