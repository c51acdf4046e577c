"""
What the blocking and the asyncio face give for a log: an owner, a reader, a cursor, a publisher and its parts, a
replica.

In reading order: `blocking` (face), `aio` (face), `appending` (face).
"""
