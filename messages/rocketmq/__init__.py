"""
Store directories of a RocketMQ broker: in and out.

In reading order: `source` (face), `walking` (values of its files, and where the log ends), `queue_files`,
`documents`, `replicas`, `plan` (face), `importing` (face); `ranges` (face), `configuration`, `part`, `building`,
`exporting` (face), `exported` (face).
"""

# SPDX-License-Identifier: Apache-2.0
