"""
Making lost copies good: by itself, and by hand.

In reading order: `autorecovery` (face), `underreplicated` (face), `recover` (face).
"""
