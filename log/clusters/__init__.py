"""
Logs in several clusters: which cluster holds a log, handles that go on where it went, and the move itself.

In reading order: `directory` (face), `following`, `owning`, `reading`, `logs` (face), `carrying`, `moving` (face).
"""
