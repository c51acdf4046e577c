"""
Store directories of a RocketMQ broker: in and out.

In reading order: none yet.
"""

# SPDX-License-Identifier: Apache-2.0
