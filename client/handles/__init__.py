"""
Handles that a user holds: a writer, a reader, a recovery; each drives a machine of `core` over connections.

In reading order: `writer` (face), `add_handle`, `writer_metadata`, `confirming`, `reader` (face),
`end_of_ledger` (face), `copies` (face), `range_reader` (face), `recovery` (face), `ledger_record` (face).
"""
