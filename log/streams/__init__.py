"""
What a log does for streams of records beside keeping them: durable cursors, records that go by age and size, slow
cursors that are passed by, the newest record of each key, and producers that are remembered.

In reading order: `cursors` (face), `cursor` (face), `holding`, `ledger`, `unread`, `naming` (face), `record`,
`leftovers` (face), `expiring` (face), `quota` (face), `marks` (face), `replaying` (face), `compaction` (face).
"""
