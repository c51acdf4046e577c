"""
Bookies as nodes of a tree and records: registrations, orders to empty one that is up, ids that were in use.

In reading order: `registry` (face), `drain_orders` (face), `retired_ids` (face).
"""
