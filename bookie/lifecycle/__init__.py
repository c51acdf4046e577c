"""
A bookie starts, registers, turns read-only, loses disks, stops.

In reading order: `bookie` (face), `identity` (face), `descriptors` (face), `registration`, `disks` (face), `restoring`.
"""
