"""
Common parts of all commands: options, input, output, the reactor of one command.

In reading order: `options` (face), `output` (face), `ledger_text` (face), `input` (face), `running`
(face), `bookie_http` (face), `jobs` (face).
"""
