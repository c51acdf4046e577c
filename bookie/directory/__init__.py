"""
One ledger directory put together, a stand-in for a dead one, and the notes that a directory keeps.

In reading order: `records` (face), `ledger_directory` (face), `dead` (face), `notes` (face).
"""
