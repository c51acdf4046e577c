"""The options of each process kind, as data."""
