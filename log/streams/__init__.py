"""
What goes on with a log's records once they are in it.

In reading order: `compacting` (face), `compaction_input`, `compacted_ledgers`.
"""
