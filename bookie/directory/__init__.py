"""
One ledger directory put together, all of a bookie with stand-ins for dead ones, and the notes that a directory keeps.

In reading order: `records` (face), `ledger_directory` (face), `directories` (face), `notes` (face).
"""
