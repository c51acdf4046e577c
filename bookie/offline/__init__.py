"""
Commands on the directories of a stopped bookie.

In reading order: `stopped` (face), `verify` (face), `journal_rows` (face), `log_rows` (face), `index_rows` (face),
`salvage` (face), `rebuild` (face), `export` (face).
"""
