"""
The commands: one module for each word after `quire`, loaded by the word.

In reading order: `bookie`, `directories`, `processes` (face), `cookie`, `ledger` (face), `log`, `clusters`,
`messages`, `pulsar`, `inspect`, `repair` (face), `metadata`, `shell`, `bench`, `demo`, `local`, `pipeline`, `conf`,
`doctor` (face).
"""
