"""
Connections and requests, against the contract of a storage.

In reading order: `contract` (face), `listener` (face), `entrance`, `judge`, `service` (face), `parking`, `giving_way`,
`reads`, `long_poll`, `copies` (face), `counters`, `crowd`, `complaints` (face), `transport` (face).
"""
