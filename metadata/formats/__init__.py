"""
What the metadata store keeps, as bytes: ledger metadata, service info, the repair queue, Java's text form,
orders to empty a bookie, ids that were in use, JSON.

In reading order: `schema`, `ledger_codec` (face), `java_text` (face), `service_info` (face), `repair_text` (face),
`drain_orders` (face), `json_text` (face), `retired_ids` (face).
"""
