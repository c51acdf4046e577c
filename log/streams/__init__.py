"""
The work of a log for streams of records beside keeping them: durable cursors, records that go by age and size, slow
cursors that are passed by, the newest record of each key, and producers that are remembered.

In reading order: `cursors` (face), `cursor` (face), `holding` (face), `record` (face), `retention` (face), `turn`
(face), `compaction` (face).
"""
