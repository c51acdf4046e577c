"""
One ledger directory put together, a stand-in for a dead one, all of a bookie, and the notes that a directory keeps.

In reading order: `records` (face), `ledger_directory` (face), `dead` (face), `directories` (face), `notes` (face).
"""
