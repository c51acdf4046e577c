"""
Ledgers as nodes of a tree: the cluster that they are in, where each lies, its metadata, new ids, walks over all.

In reading order: `store` (face), `cluster` (face), `layout` (face), `ids` (face), `buckets`, `scan`.
"""
