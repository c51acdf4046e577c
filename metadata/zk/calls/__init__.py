"""
Calls to ZooKeeper: one session, what it answers, what goes together.

In reading order: `session` (face), `client`, `gathering`, `answers`.
"""
