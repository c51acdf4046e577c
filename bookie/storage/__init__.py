"""
What requests read and write: memory, journals, directories, checkpoints, start and stop.

In reading order: `storage` (face), `events` (face), `opening`, `ledgers` (face), `deleted`, `contents`, `write_cache`,
`lookup`, `read_ahead`, `lists`, `checkpoint` (face), `counters` (face), `workers` (face).
"""
