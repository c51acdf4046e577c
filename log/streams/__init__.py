"""
What consumers and producers of a log keep beside it: durable cursors.

In reading order: `cursors` (face), `cursor` (face), `holding`, `ledger`, `unread`, `naming` (face), `record`,
`leftovers` (face).
"""
