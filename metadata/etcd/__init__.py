"""
The tree in etcd, in a layout of our own, or in that of Apache's driver (`apache`).

In reading order: `store` (face), `tree`, `plan`, `guard`, `nodes`, `session`, `watches`, `client`,
`messages`, `apache`.
"""
