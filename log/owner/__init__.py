"""
Owning a log: claims, what the owner's machine asks for, and what a user appends.

In reading order: `handle` (face), `appending` (face), `tenure`, `segments`, `lease` (face), `claims` (face), `timers`
(face).
"""
