"""
Publishing closed ledgers: tasks write parts, a driver publishes them in one step, upkeep takes what is left over.

In reading order: `sink` (face), `parts`, `txns`.
"""
