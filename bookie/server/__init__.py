"""
Connections and requests.

In reading order: `contract` (face), `listener` (face), `admission` (face), `budget`, `service` (face), `parking`,
`reads`, `long_poll`, `copies` (face), `complaints` (face), `transport` (face).
"""
