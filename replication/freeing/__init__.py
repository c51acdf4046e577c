"""
Freeing bookies from copies: what lost ones held, or full ones have too much of, goes to others, and the metadata names
these.

In reading order: `run` (face), `naming` (face), `ledger` (face), `rebalancing` (face).
"""
