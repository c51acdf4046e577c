"""Store directories of a RocketMQ broker: in and out."""

# SPDX-License-Identifier: Apache-2.0
