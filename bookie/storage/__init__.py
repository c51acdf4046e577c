"""
Storage, as requests read and write it: memory, journals, directories, checkpoints, start and stop.

In reading order: `storage` (face), `opening`, `writes`, `journals` (face), `ledgers` (face), `contents`, `write_cache`,
`lookup`, `lists`, `checkpoint` (face), `parts` (face).
"""
