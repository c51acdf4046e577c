"""
The bookies of one machine as one unit: a process for each, one configuration, one page of metrics.

In reading order: `commands` (face), `daemon`, `division` (face), `child`, `page`.
"""
