"""
`quire messages`: message stores in RocketMQ's format.

In reading order: `group` (face), `shared`, `stores`, `reading`, `putting`, `directories`.
"""
