"""
Owning a log: claims, the machine's driver, and what a user appends.

In reading order: `handle` (face), `driver`, `claims`, `encoder`.
"""
