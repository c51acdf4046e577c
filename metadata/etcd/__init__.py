"""
The tree in etcd, in a layout of our own.

In reading order: `store` (face), `tree`, `plan`, `guard`, `nodes`, `session`, `watches`, `client`, `messages`.
"""
