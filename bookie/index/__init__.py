"""
Ordered rows on disk: where each entry is stored, and what is known of each ledger.

In reading order: `rocks` (face), `run` (face), `run_index` (face), `ledger_table` (face), `sequences` (face).
"""
