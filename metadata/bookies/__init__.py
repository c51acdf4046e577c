"""
Records about bookies: orders to empty one that is up, ids that were in use.

In reading order: `drain_orders` (face), `retired_ids` (face).
"""
