"""
What a user holds: a writer, a reader, a recovery; each drives a machine of `core` over connections.

In reading order: `writer` (face), `add_driver`, `reader` (face), `range_reader` (face), `recovery` (face), `ledger_record` (face).
"""
