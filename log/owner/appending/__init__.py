"""
Appends until they are in the log: records and their callers, producers' sequences, how much may be under way, and the
entries that they become.

In reading order: `sending` (face), `appends` (face), `producing` (face), `window` (face), `encoder` (face).
"""
