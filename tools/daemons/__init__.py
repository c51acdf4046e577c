"""
Programs that run until they are stopped, and what runs inside them.

In reading order: `bookie` (face), `serving`, `descriptors`, `refill`, `surplus`.
"""
