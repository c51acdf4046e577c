"""
What consumers and producers of a log keep beside it: durable cursors; and the newest record of each key.

In reading order: `cursors` (face), `cursor` (face), `holding`, `ledger`, `unread`, `naming` (face), `record`,
`leftovers` (face); `compacting` (face), `compaction_input`, `compacted_ledgers`.
"""
