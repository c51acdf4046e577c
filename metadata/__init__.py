"""The state that the cluster agrees on: ledger metadata, registrations, cookies, ids; and the drivers that keep it."""
