"""
A bookie starts, registers, turns read-only, loses disks, stops.

In reading order: `bookie` (face), `ids` (face), `cookie` (face),
`start_check` (face), `cookie_changes` (face), `suspects`, `restoring`, `limbo`, `registration`, `kept_status`,
`read_only` (face).
"""
