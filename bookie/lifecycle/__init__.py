"""
A bookie starts, registers, turns read-only, loses disks, stops.

In reading order: `bookie` (face), `contract` (face), `parts` (face), `ids` (face), `cookie` (face), `roles`,
`start_check` (face), `suspects`, `restoring`, `limbo`, `registration`, `disks` (face), `read_only`.
"""
