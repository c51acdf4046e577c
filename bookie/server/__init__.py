"""
Connections and requests, against the contract of a storage.

In reading order: `contract` (face), `listener` (face), `admission` (face), `budget`, `service` (face), `parking`,
`reads`, `long_poll`, `copies` (face), `counters`, `complaints` (face), `transport` (face).
"""
