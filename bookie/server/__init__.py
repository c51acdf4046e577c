"""
Connections and requests, against the contract of a storage.

In reading order: `contract` (face), `listener` (face), `service` (face), `parking`, `reads`, `long_poll`, `copies`
(face), `counters`, `complaints`.
"""
