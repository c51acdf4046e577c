"""
The contents of the metadata store as bytes: ledger metadata, service info, the repair queue, Java's text form, JSON.

In reading order: `schema`, `ledger_codec` (face), `java_text` (face), `service_info` (face), `repair_text` (face),
`json_text` (face).
"""
