"""
What a log does for streams of records beside keeping them: durable cursors, records that go by age and size, slow
cursors that are passed by, the newest record of each key, and producers that are remembered.

In reading order: `cursors` (face), `cursor` (face), `holding`, `ledger`, `unread`, `record`,
`leftovers` (face), `retention` (face), `compaction` (face).
"""
