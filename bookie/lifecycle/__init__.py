"""
A bookie starts, registers, turns read-only, loses disks, stops.

In reading order: `bookie` (face), `ids` (face), `cookie` (face), `roles`, `start_check` (face), `descriptors` (face),
`registration`, `disks` (face), `restoring`.
"""
