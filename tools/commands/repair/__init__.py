"""
Making lost copies good: by itself, and by hand.

In reading order: `progress` (face), `autorecovery` (face), `underreplicated` (face), `recover` (face),
`rebalance` (face), `scrub` (face).
"""
