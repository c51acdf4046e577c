"""
Growth: how a figure changes as one thing grows by powers of ten, with the exponent of each curve.

In reading order: `curves`, `held`, `streams`, `ledger_records`, `slow_bookie`, `page`; `python -m bench.growth`.
"""
