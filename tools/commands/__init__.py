"""
The commands: one module for each word after `quire`, loaded by the word.

In reading order: `bookie`, `directories`, `cookie`, `ledger`, `log`, `inspect`, `recover`, `metadata`, `bench`, `demo`,
`local`, `pipeline`.
"""
