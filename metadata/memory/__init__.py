"""
The metadata store in memory, for tests and the simulator: faults and time are decided by the caller.

In reading order: `store` (face), `cluster`, `tree`.
"""
