"""
Times and sizes that one process's part in AutoRecovery has seen since its start, through all its terms as the auditor.

Knows: what is measured.  Does not know: names, who reads it.
"""

from quire.metadata.auditing import Periodic
from quire.metrics.histogram import Histogram

# SPDX-License-Identifier: Apache-2.0


class Measures:
    """Counts that only rise, and histograms of seconds or, where it says so, of numbers."""

    def __init__(self) -> None:
        # of the auditor
        self.votes = 0
        self.checks = {check: Histogram() for check in Periodic}
        self.audits = Histogram()  # of all ledgers
        self.losses = Histogram()  # passes for bookies that were lost
        self.marks = Histogram(1)  # ledgers that a pass marked
        self.marked_bytes = Histogram(1)  # of the ledgers of a page that were marked
        self.fragments = Histogram(1)  # of a checked ledger
        self.bookies = Histogram(1)  # that a checked ledger names
        self.checked = 0  # ledgers
        self.delayed = 0  # bookies that went away and had a delay
        self.came_back = 0  # of these, within it
        # of the worker
        self.repairs = Histogram()  # tries that left nothing to do
        self.copied_bytes = Histogram(1)  # by a try
        self.errors = 0  # tries that ended with an error
        self.hopeless = 0  # tries of ledgers with entries that nobody has
        self.reads, self.stores = Histogram(), Histogram()  # requests of copying
