"""
Calls to ZooKeeper: one session, what it answers, what goes together.

In reading order: `session` (face), `gathering`, `steps` (face), `answers` (face).
"""
