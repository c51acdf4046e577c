"""Named logs: endless sequences of records, made of ledgers."""
