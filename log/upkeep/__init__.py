"""
The upkeep of logs: what is trimmed, given up, ended or deleted goes, in steps that any number of processes may repeat;
ledgers that no log names are found and deleted.

In reading order: `partitioned` (face), `known_logs` (face), `keeping` (face), `tidying` (face), `merging` (face),
`trims` (face), `deleting`, `orphans` (face).
"""
