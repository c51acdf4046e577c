"""
`quire pulsar`: Pulsar's topics, read without a broker.

In reading order: `group` (face), `shared`, `listing`, `reading`, `exporting`.
"""
