"""
The handles that the blocking and the asyncio face give for a log: an owner, a reader, a cursor, a publisher and its
parts, a replica.

`blocking` is made from `aio` by `make manual`; `loops` and `threads` are where they differ.

In reading order: `aio` (face), `blocking` (face), `loops` (face), `threads` (face), `appending` (face),
`partitions` (face), `known`.
"""
