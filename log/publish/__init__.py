"""
Publishing closed ledgers: tasks write parts, a driver publishes them in one step, upkeep takes what is left over; plain
ledgers are taken in.

In reading order: `sink` (face), `parts` (face), `txns` (face), `forgetting` (face), `settling` (face),
`adopting` (face).
"""
