"""
What requests read and write: memory, journals, directories, checkpoints, start and stop.

In reading order: `storage` (face), `opening`, `writes`, `journals` (face), `ledgers` (face), `contents`, `write_cache`,
`lookup`, `read_ahead`, `lists`, `checkpoint` (face), `parts` (face), `workers` (face).
"""
