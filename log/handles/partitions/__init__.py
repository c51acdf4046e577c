"""
Partitioned logs as the blocking and the asyncio face give them: an owner, a reader and a cursor of all partitions.

In reading order: `aio` (face), `blocking` (face), `known`.
"""
