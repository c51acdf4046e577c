"""
Connections and requests, against the contract of a storage.

In reading order: `contract` (face), `listener` (face), `admission` (face), `service` (face), `parking`, `giving_way`,
`reads`, `owed`, `long_poll`, `copies` (face), `counters`, `complaints` (face), `transport` (face).
"""
