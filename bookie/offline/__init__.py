"""
Commands on the directories of a stopped bookie.

In reading order: `stopped` (face), `verify` (face), `inspection` (face), `rebuild` (face), `export` (face).
"""
