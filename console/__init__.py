"""
The console: a cluster as pages in a browser.

In reading order: `history`, `rounds`, `cluster`, `ledgers`, `entries`, `charts`, `views`, `pages`, `daemon`, `command`.
"""
