"""
Bookies as nodes of a tree and records: registrations, orders to empty one that is up.

In reading order: `registry` (face), `drain_orders` (face).
"""
