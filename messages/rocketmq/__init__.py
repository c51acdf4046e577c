"""
Store directories of a RocketMQ broker: in and out.

In reading order: `source` (files of a directory), `walking` (their values, and where the log ends), `queue_files`,
`documents`, `replicas`, `plan` (face), `importing` (face); `ranges` (face), `configuration`, `part`, `building`,
`exporting` (face), `exported` (face).
"""

# SPDX-License-Identifier: Apache-2.0
